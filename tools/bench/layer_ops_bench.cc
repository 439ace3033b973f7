#include "tools/bench/layer_ops_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <utility>

#include "kernels/cpu/isa.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/worse.h"
#include "tests/kernels/conformance/kv_pool.h"
#include "tools/bench/random_weight.h"

namespace refrain::bench {
namespace {

using kernels::Backend;
using kernels::DType;
using kernels::F32View;
using kernels::KvPool;
using kernels::KvSlotRef;
using kernels::LinearWeight;
using Floats = std::vector<float>;

struct ModelShape {
  const char* name;
  int64_t hidden, ffn;
  int num_heads, num_kv_heads, head_dim;
  int64_t vocab;
};
// Of the larger one's vocabulary only a part: rows cost the same.
constexpr ModelShape kModels[] = {{"SmolLM2-135M", 576, 1536, 9, 3, 64, 49152},
                                  {"Llama-3-8B", 4096, 14336, 32, 8, 128, 8192}};

Floats RandomFloats(int64_t count, uint32_t seed) {
  std::minstd_rand random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The largest difference, relative to the root mean square of what is right.
double WorstError(const Floats& got, const Floats& want) {
  double worst = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = kernels::Worse(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    squares += static_cast<double>(want[i]) * want[i];
  }
  return worst / std::sqrt(squares / static_cast<double>(want.size()));
}

// One operation on one shape, with data of its own. `result` is what `run` has computed.
struct OpCase {
  double bytes = 0;      // read and written by one call
  double ops = 0;        // additions and multiplications, about
  bool integer = false;  // products of 8-bit integers
  double tolerance = 1e-5;
  std::function<void(Backend&)> run;
  std::function<Floats()> result;
};
// `backend` packs the weights; `kv` is the type of K and V in the cache.
using MakeCase = OpCase (*)(Backend& backend, const ModelShape& model, int64_t rows, DType kv);

std::shared_ptr<LinearWeight> Table(Backend& backend, const ModelShape& model) {
  const std::vector<std::byte> data = RandomWeight(DType::kQ8_0, model.vocab, model.hidden, 3);
  const kernels::WeightSlice slice{DType::kQ8_0, model.vocab, model.hidden, data.data(), {}};
  auto packed = backend.PackLinear({&slice, 1}, {.embedding = true});
  if (!packed.ok()) {
    std::fprintf(stderr, "cannot pack: %s\n", std::string(packed.status().message()).c_str());
    std::exit(1);
  }
  return *std::move(packed);
}

OpCase Embed(Backend& backend, const ModelShape& m, int64_t rows, DType) {
  auto out = std::make_shared<Floats>(rows * m.hidden);
  auto ids = std::make_shared<std::vector<int32_t>>();
  std::minstd_rand random(4);
  for (int64_t i = 0; i < rows; ++i) {
    ids->push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(m.vocab)));
  }
  const double row_bytes = static_cast<double>(*kernels::RowBytes(DType::kQ8_0, m.hidden));
  return {.bytes = static_cast<double>(rows) * (row_bytes + 4.0 * static_cast<double>(m.hidden)),
          .ops = static_cast<double>(rows * m.hidden),
          .run =
              [=, table = Table(backend, m)](Backend& b) {
                b.Embed({table.get(), *ids, F32View(out->data(), rows, m.hidden)});
              },
          .result = [=] { return *out; }};
}

OpCase RmsNorm(Backend&, const ModelShape& m, int64_t rows, DType) {
  auto x = std::make_shared<Floats>(RandomFloats(rows * m.hidden, 1));
  auto weight = std::make_shared<Floats>(RandomFloats(m.hidden, 2));
  auto out = std::make_shared<Floats>(x->size());
  return {.bytes = 8.0 * static_cast<double>(x->size()),
          .ops = 4.0 * static_cast<double>(x->size()),
          .run =
              [=](Backend& b) {
                b.RmsNorm({1e-5,
                           F32View(x->data(), rows, m.hidden),
                           weight->data(),
                           {},
                           F32View(out->data(), rows, m.hidden)});
              },
          .result = [=] { return *out; }};
}

// Rows of one sequence, whose chunks are in order.
struct RopeData {
  RopeData(const ModelShape& m, int64_t rows, DType kv)
      : pool(static_cast<int>(rows / 64 + 1), 1, m.num_kv_heads, m.head_dim, 64, kv,
             kernels::HostPackingOf(kv)),
        qkv(RandomFloats(rows * (m.num_heads + 2 * m.num_kv_heads) * m.head_dim, 5)) {
    for (int32_t i = 0; i < rows; ++i) {
      places.push_back({i / 64, i % 64});
      positions.push_back(i);
      for (int k = 0; k < m.head_dim / 2; ++k) {
        const double angle = i * std::pow(1e4, -2.0 * k / m.head_dim);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  KvPool pool;
  Floats qkv, cos, sin;
  std::vector<int32_t> positions;
  std::vector<KvSlotRef> places;
};

OpCase RopeAppend(Backend&, const ModelShape& m, int64_t rows, DType kv) {
  auto data = std::make_shared<RopeData>(m, rows, kv);
  const int64_t cols = (m.num_heads + 2 * m.num_kv_heads) * m.head_dim;
  const auto written = static_cast<double>(rows * (m.num_heads + m.num_kv_heads) * m.head_dim);
  const double kv_bytes = static_cast<double>(2 * rows * m.num_kv_heads * m.head_dim) *
                          static_cast<double>(kernels::Traits(kv).block_bytes);
  return {.bytes = 4.0 * static_cast<double>(data->qkv.size()) + 4.0 * written + kv_bytes,
          .ops = 3.0 * written,
          .tolerance = kv == DType::kBF16 ? 0.02 : 2e-3,  // what rounding a large element costs
          .run =
              [=](Backend& b) {
                b.RopeAppend(
                    {0,
                     m.num_heads,
                     F32View(data->qkv.data(), rows, cols),
                     data->positions,
                     {data->cos.data(), data->sin.data(), static_cast<int32_t>(rows), m.head_dim},
                     data->places,
                     data->pool.view()});
              },
          .result =
              [=] {
                Floats all = data->qkv;
                for (const float element : data->pool.AllElements()) {
                  all.push_back(element == 1e9f ? 0.0f : element);
                }
                return all;
              }};
}

OpCase SwiGlu(Backend&, const ModelShape& m, int64_t rows, DType) {
  auto gate = std::make_shared<Floats>(RandomFloats(rows * m.ffn, 6));
  auto up = std::make_shared<Floats>(RandomFloats(rows * m.ffn, 7));
  auto out = std::make_shared<Floats>(gate->size());
  const auto view = [=](const std::shared_ptr<Floats>& v) {
    return F32View(v->data(), rows, m.ffn);
  };
  return {.bytes = 12.0 * static_cast<double>(out->size()),
          .ops = 5.0 * static_cast<double>(out->size()),
          .run =
              [=](Backend& b) {
                b.SwiGlu({view(gate), view(up), view(out)});
              },
          .result = [=] { return *out; }};
}

OpCase Add(Backend&, const ModelShape& m, int64_t rows, DType) {
  auto x = std::make_shared<Floats>(RandomFloats(rows * m.hidden, 8));
  auto y = std::make_shared<Floats>(RandomFloats(rows * m.hidden, 9));
  return {.bytes = 12.0 * static_cast<double>(x->size()),
          .ops = static_cast<double>(x->size()),
          .run =
              [=](Backend& b) {
                b.Add({F32View(x->data(), rows, m.hidden), F32View(y->data(), rows, m.hidden)});
              },
          .result = [=] { return *x; }};
}

// The last rows of `rows` sequences: every second row of a batch.
OpCase Logits(Backend& backend, const ModelShape& m, int64_t rows, DType) {
  auto x = std::make_shared<Floats>(RandomFloats(2 * rows * m.hidden, 1));
  auto norm = std::make_shared<Floats>(RandomFloats(m.hidden, 2));
  auto chosen = std::make_shared<std::vector<int32_t>>();
  for (int32_t i = 0; i < rows; ++i) chosen->push_back(2 * i + 1);
  auto normed = std::make_shared<Floats>(rows * m.hidden);
  auto out = std::make_shared<Floats>(rows * m.vocab);
  auto head = Table(backend, m);
  return {
      .bytes = static_cast<double>(head->resident_bytes()) + 4.0 * static_cast<double>(out->size()),
      .ops = 2.0 * static_cast<double>(rows * m.vocab * m.hidden),
      .integer = true,
      .tolerance = 1e-3,
      .run =
          [=](Backend& b) {
            b.RmsNorm({1e-5, F32View(x->data(), 2 * rows, m.hidden), norm->data(), *chosen,
                       F32View(normed->data(), rows, m.hidden)});
            b.Linear({head.get(), F32View(normed->data(), rows, m.hidden),
                      F32View(out->data(), rows, m.vocab)});
          },
      .result = [=] { return *out; }};
}

struct Op {
  const char* name;
  MakeCase make;
  int64_t most_rows;  // beyond which it means nothing, or the oracle takes too long
};
constexpr int64_t kAnyRows = int64_t{1} << 20;
constexpr Op kOps[] = {{"embed", Embed, kAnyRows},
                       {"rms_norm", RmsNorm, kAnyRows},
                       {"rope_append", RopeAppend, kAnyRows},
                       {"swiglu", SwiGlu, kAnyRows},
                       {"add", Add, kAnyRows},
                       {"logits", Logits, 32}};

bool RunCase(kernels::cpu::CpuBackend& backend, const LayerOpsBenchOptions& options,
             const MachinePeaks& peaks, const Op& op, const ModelShape& model, int64_t rows) {
  kernels::ReferenceBackend reference;
  const DType kv = backend.info().preferred_kv;
  const OpCase expected = op.make(reference, model, rows, kv);
  const OpCase measured = op.make(backend, model, rows, kv);
  expected.run(reference);
  measured.run(backend);
  const double error = WorstError(measured.result(), expected.result());
  const bool right = error < measured.tolerance;
  const CallTiming timing = TimeCalls(options.min_seconds, [&] { measured.run(backend); });
  // A megabyte per thread stays in the second-level cache of any server processor.
  const bool cached = measured.bytes < 1e6 * backend.info().threads;
  const double byte_peak = cached ? peaks.cached_read_bytes_per_s : peaks.read_bytes_per_s;
  const double byte_rate = measured.bytes / timing.best;
  const double op_rate = measured.ops / timing.best;
  const double op_peak =
      measured.integer
          ? ProductPeak(peaks, *kernels::cpu::ResolveIsa(backend.info().isa), DType::kQ8_0, rows)
          : peaks.fma_flops_per_s;
  std::printf("%-11s %-12s %5lld %10.2f %10.2f us %7.2f GB/s %4.0f %% %8.1f GOP/s %4.0f %%  %s\n",
              op.name, model.name, static_cast<long long>(rows), timing.median * 1e6,
              timing.best * 1e6, byte_rate / 1e9, byte_peak > 0 ? 100 * byte_rate / byte_peak : 0,
              op_rate / 1e9, op_peak > 0 ? 100 * op_rate / op_peak : 0, right ? "ok" : "WRONG");
  std::fflush(stdout);
  return right;
}

}  // namespace

bool IsLayerOp(std::string_view name) {
  return std::any_of(std::begin(kOps), std::end(kOps),
                     [&](const Op& op) { return name == op.name; });
}

BenchOutcome RunLayerOpsBench(kernels::cpu::CpuBackend& backend,
                              const LayerOpsBenchOptions& options, const MachinePeaks& peaks) {
  std::printf("%-11s %-12s %5s %10s %13s %19s %22s\n", "op", "shape of", "rows", "median", "best",
              "moved (best)", "computed (best)");
  const std::vector<int64_t> rows =
      options.rows.empty() ? std::vector<int64_t>{1, 32, 512} : options.rows;
  BenchOutcome outcome;
  for (const Op& op : kOps) {
    if (!options.op.empty() && options.op != op.name) continue;
    for (const ModelShape& model : kModels) {
      for (const int64_t count : rows) {
        if (count > op.most_rows) continue;
        outcome.Add(RunCase(backend, options, peaks, op, model, count));
      }
    }
  }
  return outcome;
}

}  // namespace refrain::bench
