#include "tools/bench/attention_contest.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

namespace refrain::bench {
namespace {

using kernels::AttentionMode;
using kernels::DType;

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double Flops(const AttentionModel& model, double rows, double keys) {
  return 4.0 * rows * keys * model.num_heads * model.head_dim;
}

double Bytes(const AttentionModel& model, DType kv, double keys) {
  return keys * static_cast<double>(model.KvElements()) * kernels::Traits(kv).block_bytes;
}

// The pool's bytes taken for tensors in one piece.
NaiveBatch NaiveOver(const RandomKv& kv, const AttentionModel& model, const BatchShape& shape,
                     const kernels::ChunkAttentionArgs& args, std::vector<float>& out) {
  NaiveBatch batch;
  batch.slots = shape.slots;
  batch.keys = shape.keys;
  batch.num_heads = model.num_heads;
  batch.num_kv_heads = model.num_kv_heads;
  batch.head_dim = model.head_dim;
  batch.scale = args.scale;
  batch.kv_dtype = kv.view().dtype;
  batch.k = kv.view().base;
  batch.v = batch.k +
            static_cast<size_t>(
                Bytes(model, batch.kv_dtype, static_cast<double>(shape.slots) * shape.keys) / 2);
  batch.q = args.q.F32Row(0);
  out.resize(args.q.rows * args.q.cols);
  batch.out = out.data();
  return batch;
}

void CheckNaive(const NaiveBatch& batch, std::span<const float> out) {
  const std::vector<float> want = ExactNaiveRow(batch, batch.slots - 1);
  CheckAttentionRow(out.last(want.size()), want, RowError::kOfF32, "naive attention");
}

}  // namespace

double Ceilings::LeastSeconds(double flops, double bytes) const {
  return std::max(flops / flops_per_s, bytes / read_bytes_per_s);
}

std::string_view Name(Method method) {
  switch (method) {
    case Method::kNaive:
      return "naive";
    case Method::kPaged:
      return "paged";
    case Method::kSameIds:
      return "paged_shared";
    case Method::kTwoPhase:
      return "two_phase";
  }
  return "";
}

double ContestResult::Median(Method method) const {
  return MedianOf(seconds[static_cast<int>(method)]);
}

Interval ContestResult::Ratio(Method a, Method b) const {
  const auto& left = seconds[static_cast<int>(a)];
  const auto& right = seconds[static_cast<int>(b)];
  std::vector<double> ratios;
  for (size_t i = 0; i < left.size(); ++i) ratios.push_back(left[i] / right[i]);
  std::sort(ratios.begin(), ratios.end());
  // The median lies between two of the sorted values with a binomial probability.
  const double n = static_cast<double>(ratios.size());
  const double rank = std::floor((n - 1.96 * std::sqrt(n)) / 2);
  const size_t low = rank < 0 ? 0 : static_cast<size_t>(rank);
  return {ratios[low], MedianOf(ratios), ratios[ratios.size() - 1 - low]};
}

ContestResult AttentionContest::Run(const AttentionModel& model, const RandomKv& kv,
                                    const BatchShape& shape, const ContestOptions& options) {
  AttentionWorkload own(model, kv, shape, Sharing::kOwnChunks);
  AttentionWorkload same_ids(model, kv, shape, Sharing::kSameIds);
  AttentionWorkload run(model, kv, shape, Sharing::kRun);
  own.args().mode = same_ids.args().mode = AttentionMode::kPaged;
  for (AttentionWorkload* work : {&own, &same_ids, &run}) {
    work->args().reproducible = options.reproducible;
  }
  const Arithmetic arithmetic = AttentionArithmetic(isa_, kv.view().dtype, options.reproducible);
  const RowError error = arithmetic == Arithmetic::kF32 ? RowError::kOfF32 : RowError::kOfBf16Rows;
  std::vector<float> naive_out;
  const NaiveBatch naive = NaiveOver(kv, model, shape, own.args(), naive_out);
  const auto attend = [&](AttentionWorkload& work) {
    kernels::cpu::ChunkAttention(pool_, isa_, work.args(), scratch_);
  };
  std::array<std::function<void()>, kMethods.size()> calls;
  if (options.own_chunks) {
    calls[static_cast<int>(Method::kNaive)] = [&] { naive_.Run(naive); };
    calls[static_cast<int>(Method::kPaged)] = [&] { attend(own); };
  }
  calls[static_cast<int>(Method::kSameIds)] = [&] { attend(same_ids); };
  calls[static_cast<int>(Method::kTwoPhase)] = [&] { attend(run); };

  for (const auto& call : calls) {
    if (call) call();
  }
  CheckAttentionRow(same_ids.out(), run.out(), error, "paged with the same ids");
  run.Check(shape.slots - 1, 0, error);
  if (options.own_chunks) {
    own.Check(shape.slots - 1, 0, error);
    CheckNaive(naive, naive_out);
  }
  ContestResult result;
  std::vector<double> reads, multiply_adds;
  double total = 0;
  for (int round = 0; round < options.min_rounds || total < options.min_seconds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const size_t at = round % 2 == 0 ? i : calls.size() - 1 - i;
      if (!calls[at]) continue;
      // None may find its keys in the caches because another has just read them.
      reads.push_back(probe_.Read(clock_));
      // In a step another operation has just ended: its threads are awake.
      pool_.ParallelFor(pool_.threads(), 1, [](int, int64_t, int64_t) {});
      const double begin = Seconds(clock_);
      calls[at]();
      result.seconds[at].push_back(Seconds(clock_) - begin);
      total += result.seconds[at].back();
    }
    multiply_adds.push_back(probe_.MultiplyAdd(arithmetic, clock_));
  }
  result.ceilings = {MedianOf(reads), MedianOf(multiply_adds), arithmetic};
  return result;
}

double TwoPhaseLeastSeconds(const Ceilings& ceilings, const AttentionModel& model, DType kv,
                            const BatchShape& shape) {
  const double own = static_cast<double>(shape.keys) - shape.shared_keys;
  return ceilings.LeastSeconds(Flops(model, shape.slots, shape.shared_keys),
                               Bytes(model, kv, shape.shared_keys)) +
         ceilings.LeastSeconds(Flops(model, shape.slots, own), Bytes(model, kv, shape.slots * own));
}

double PagedLeastSeconds(const Ceilings& ceilings, const AttentionModel& model, DType kv,
                         const BatchShape& shape) {
  return ceilings.LeastSeconds(Flops(model, shape.slots, shape.keys),
                               Bytes(model, kv, static_cast<double>(shape.slots) * shape.keys));
}

double SameIdsLeastSeconds(const Ceilings& ceilings, const AttentionModel& model, DType kv,
                           const BatchShape& shape) {
  const double own = static_cast<double>(shape.keys) - shape.shared_keys;
  return ceilings.LeastSeconds(Flops(model, shape.slots, shape.keys),
                               Bytes(model, kv, shape.shared_keys + shape.slots * own));
}

double LeastSeconds(Method method, const Ceilings& ceilings, const AttentionModel& model, DType kv,
                    const BatchShape& shape) {
  switch (method) {
    case Method::kNaive:
    case Method::kPaged:
      return PagedLeastSeconds(ceilings, model, kv, shape);
    case Method::kSameIds:
      return SameIdsLeastSeconds(ceilings, model, kv, shape);
    case Method::kTwoPhase:
      break;
  }
  return TwoPhaseLeastSeconds(ceilings, model, kv, shape);
}

}  // namespace refrain::bench
