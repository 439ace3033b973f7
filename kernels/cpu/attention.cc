#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cassert>
#include <numbers>
#include <utility>
#include <vector>

#include "kernels/cpu/aligned_floats.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_tasks.h"
#include "kernels/cpu/e4m3_segment.h"

namespace refrain::kernels::cpu {
namespace {

using RowTask = AttentionTasks::RowTask;
using Segment = AttentionTasks::Segment;
using SegmentTask = AttentionTasks::SegmentTask;

// Below this many multiply-adds waking the pool costs more than it gives.
constexpr int64_t kCostOnCallingThread = 1 << 17;

// What one thread works in.
struct Workspace {
  AlignedFloats q, o, segment_o, scores, k_tile, v_tile, q_pairs, v_pairs;
  E4m3Segment e4m3;
  std::vector<SoftmaxState> states, segment_states;
  std::vector<int32_t> limits, oldest;
  int32_t positions[kMaxSegmentKeys];

  void Reserve(int rows, int head_dim, int64_t o_stride, bool pairs) {
    q.Reserve(static_cast<int64_t>(rows) * head_dim);
    o.Reserve(rows * o_stride);
    segment_o.Reserve(rows * o_stride);
    scores.Reserve(static_cast<int64_t>(rows) * kScoreStride);
    k_tile.Reserve(static_cast<int64_t>(std::max(head_dim, 16)) * kKeyTileStride + kTileKeys);
    v_tile.Reserve(kTileKeys * o_stride);
    if (std::ssize(segment_states) < rows) {
      states.resize(rows);
      segment_states.resize(rows);
    }
    if (!pairs) return;
    q_pairs.Reserve(int64_t{rows} * (head_dim + kQueryPadElements) / 2);
    v_pairs.Reserve(kMaxSegmentKeys / 2 * o_stride);
  }
};

KvElementType ElementType(DType dtype) {
  assert(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF8E4M3);
  if (dtype == DType::kF32) return KvElementType::kF32;
  // E4M3 is widened to bf16 first.
  return dtype == DType::kF16 ? KvElementType::kF16 : KvElementType::kBF16Pairs;
}

}  // namespace

struct AttentionScratch::State {
  AttentionTasks tasks;
  std::vector<std::unique_ptr<Workspace>> workspaces;  // [threads]
  std::vector<SoftmaxState> partial_states;            // [num_partials]
  AlignedFloats partial_o;                             // [num_partials, o_stride]
};

namespace {

// One call: the arguments and what every task needs of them.
class Call {
 public:
  Call(const ChunkAttentionArgs& args, const AttentionKernels& kernels, const AttentionTasks& tasks,
       SoftmaxState* partial_states, float* partial_o)
      : args_(args),
        kernels_(kernels),
        tasks_(tasks),
        partial_states_(partial_states),
        partial_o_(partial_o),
        group_(args.num_heads / args.kv.num_kv_heads),
        q_scale_(static_cast<float>(args.scale * std::numbers::log2e)),
        o_stride_((args.kv.head_dim + 15) / 16 * 16) {}

  int64_t o_stride() const { return o_stride_; }
  // Whole tiles of 16: a task has all heads of a group, however many.
  int max_rows() const { return std::max((group_ + 15) / 16 * 16, kMaxTaskRows); }

  // `next` is what this thread will most likely do next, or null: its first keys are asked for.
  void Run(const SegmentTask& task, const SegmentTask* next, Workspace& ws) const {
    ws.limits.clear();
    ws.oldest.clear();
    int r = 0;
    for (const auto& row :
         tasks_.task_rows().subspan(task.row_begin, task.row_end - task.row_begin)) {
      r = LoadRow(row.row, row.key_limit, task.kv_head, r, ws);
    }
    const KeyPiece behind =
        next == nullptr ? KeyPiece{} : KeysOf(next->slot, next->kv_head, next->begin, next->end);
    SoftmaxState* const states = partial_states_ + task.partial;
    float* const o = partial_o_ + task.partial * o_stride_;
    const int32_t hi = std::min(task.end, ws.limits.back());
    for (int32_t segment = task.segment_begin; segment < hi; segment += kMaxSegmentKeys) {
      const bool first = segment == task.segment_begin;
      SegmentArgs a =
          Arguments(ws, r, task.slot, task.kv_head, segment, std::max(task.begin, segment),
                    std::min(hi, segment + kMaxSegmentKeys));
      a.states = first ? states : ws.segment_states.data();
      a.o = first ? o : ws.segment_o.data();
      if (a.hi == hi) EndPieces(task.slot, a);
      RunSegment(a, behind, ws);
      if (!first) MergeSegment(r, ws, states, o);
    }
  }

  void Run(const RowTask& task, const RowTask* next, Workspace& ws) const {
    const SlotStep& step = args_.steps[task.slot];
    ws.limits.clear();
    ws.oldest.clear();
    int rows = 0;
    for (int32_t i = task.row_begin; i < task.row_end; ++i) {
      const int32_t limit = step.key_end - step.num_rows + i + 1;
      rows = LoadRow(step.row_begin + i, limit, task.kv_head, rows, ws);
    }
    const KeyPiece behind = next == nullptr ? KeyPiece{} : FirstKeys(*next);
    std::fill_n(ws.states.begin(), rows, SoftmaxState{});
    bool empty = true;
    for (const Segment& segment : tasks_.slot(task.slot).segments) {
      if (segment.begin >= ws.limits.back()) break;
      if (segment.partial >= 0) {
        MergePartials(task, segment, rows, ws);
      } else {
        const int32_t begin = std::max(segment.begin, step.key_begin);
        const int32_t hi = std::min(segment.end, ws.limits.back());
        if (begin >= hi) continue;
        SegmentArgs a = Arguments(ws, rows, task.slot, task.kv_head, segment.begin, begin, hi);
        a.states = empty ? ws.states.data() : ws.segment_states.data();
        a.o = empty ? ws.o.data() : ws.segment_o.data();
        if (hi == ws.limits.back()) EndPieces(task.slot, a);
        RunSegment(a, behind, ws);
        if (!empty) MergeSegment(rows, ws, ws.states.data(), ws.o.data());
      }
      empty = false;
    }
    Finish(task, rows, ws);
  }

 private:
  // The heads of one row that use `kv_head`, as query rows from `r` on; returns the next.
  int LoadRow(int32_t row, int32_t limit, int32_t kv_head, int r, Workspace& ws) const {
    const int d = args_.kv.head_dim;
    const float* const q = args_.q.F32Row(row) + static_cast<int64_t>(kv_head) * group_ * d;
    kernels_.scale(q, q_scale_, ws.q.data() + static_cast<int64_t>(r) * d, group_ * d);
    for (int g = 0; g < group_; ++g) {
      ws.limits.push_back(limit);
      if (args_.window_tokens != 0) {
        ws.oldest.push_back(args_.row_positions[row] - args_.window_tokens);
      }
    }
    return r + group_;
  }

  // The slot's piece that holds `key`.
  const KeyPiece* PieceOf(int32_t slot, int32_t key) const {
    const std::vector<KeyPiece>& pieces = tasks_.slot(slot).pieces;
    const auto piece = std::upper_bound(
        pieces.begin(), pieces.end(), key,
        [](int32_t k, const KeyPiece& candidate) { return k < candidate.begin + candidate.count; });
    return pieces.data() + (piece - pieces.begin());
  }

  size_t HeadOffset(int32_t kv_head) const {
    return args_.layer * args_.kv.layer_bytes + kv_head * args_.kv.head_bytes;
  }

  // Those of the slot's keys [begin, end) that lie together, k those of the layer and KV head.
  KeyPiece KeysOf(int32_t slot, int32_t kv_head, int32_t begin, int32_t end) const {
    KeyPiece piece = *PieceOf(slot, begin);
    piece.k += HeadOffset(kv_head);
    piece.token += begin - piece.begin;
    piece.count = std::min(piece.begin + piece.count, end) - begin;
    piece.begin = begin;
    return piece;
  }

  // The task reads no keys of the slot behind a.hi.
  void EndPieces(int32_t slot, SegmentArgs& a) const { a.pieces_end = PieceOf(slot, a.hi - 1) + 1; }

  // The keys that a task of the second phase reads first, none where all its segments have been
  // computed.
  KeyPiece FirstKeys(const RowTask& task) const {
    const std::vector<Segment>& segments = tasks_.slot(task.slot).segments;
    const auto own = std::find_if(segments.begin(), segments.end(),
                                  [](const Segment& segment) { return segment.partial < 0; });
    if (own == segments.end()) return {};
    const SlotStep& step = args_.steps[task.slot];
    return KeysOf(task.slot, task.kv_head, std::max(own->begin, step.key_begin), step.key_end);
  }

  SegmentArgs Arguments(Workspace& ws, int rows, int32_t slot, int32_t kv_head,
                        int32_t segment_begin, int32_t begin, int32_t hi) const {
    const std::vector<KeyPiece>& pieces = tasks_.slot(slot).pieces;
    SegmentArgs a{};
    a.type = ElementType(args_.kv.dtype);
    a.head_dim = args_.kv.head_dim;
    a.chunk_tokens = args_.kv.chunk_tokens;
    a.num_rows = rows;
    a.any_row_count = args_.reproducible;
    a.pieces = PieceOf(slot, begin);
    a.pieces_end = pieces.data() + pieces.size();
    a.ahead_to_first_level = kernels_.ahead_to_first_level;
    a.head_offset = HeadOffset(kv_head);
    a.segment_begin = segment_begin;
    a.begin = begin;
    a.hi = hi;
    a.q = ws.q.data();
    a.q_stride = args_.kv.head_dim;
    a.row_limits = ws.limits.data();
    if (args_.window_tokens != 0) {
      GatherPositions(a, ws.positions);
      a.row_oldest = ws.oldest.data();
      a.positions = ws.positions;
    }
    a.scores = ws.scores.data();
    a.k_tile = ws.k_tile.data();
    a.v_tile = ws.v_tile.data();
    a.q_pairs = ws.q_pairs.data();
    a.v_pairs = ws.v_pairs.data();
    a.o_stride = o_stride_;
    return a;
  }

  static void GatherPositions(const SegmentArgs& a, int32_t* positions) {
    const KeyPiece* piece = a.pieces;
    for (int32_t key = a.begin; key < a.hi; ++key) {
      if (key >= piece->begin + piece->count) ++piece;
      positions[key - a.segment_begin] = piece->positions[piece->token + key - piece->begin];
    }
  }

  void RunSegment(SegmentArgs& a, const KeyPiece& behind, Workspace& ws) const {
    assert(a.hi - a.segment_begin <= kMaxSegmentKeys);
    if (behind.k != nullptr) {
      a.behind = behind;
      a.behind.k -= a.head_offset;
    }
    if (args_.kv.dtype == DType::kF8E4M3) ws.e4m3.Widen(kernels_.widen_e4m3, a);
    kernels_.segment(a);
  }

  // Merges the segment that was just run into `states` and `o`.
  void MergeSegment(int rows, const Workspace& ws, SoftmaxState* states, float* o) const {
    for (int r = 0; r < rows; ++r) {
      kernels_.merge(states[r], o + r * o_stride_, ws.segment_states[r],
                     ws.segment_o.data() + r * o_stride_, args_.kv.head_dim);
    }
  }

  void MergePartials(const RowTask& task, const Segment& segment, int rows, Workspace& ws) const {
    const int64_t first = segment.partial + task.kv_head * segment.partial_head_stride +
                          static_cast<int64_t>(task.row_begin) * group_;
    for (int r = 0; r < rows; ++r) {
      kernels_.merge(ws.states[r], ws.o.data() + r * o_stride_, partial_states_[first + r],
                     partial_o_ + (first + r) * o_stride_, args_.kv.head_dim);
    }
  }

  void Finish(const RowTask& task, int rows, Workspace& ws) const {
    const int d = args_.kv.head_dim;
    for (int r = 0; r < rows; ++r) {
      const int64_t row = args_.steps[task.slot].row_begin + task.row_begin + r / group_;
      const int head = task.kv_head * group_ + r % group_;
      kernels_.finish(ws.states[r], ws.o.data() + r * o_stride_,
                      args_.out.F32Row(row) + static_cast<int64_t>(head) * d, d);
    }
  }

  const ChunkAttentionArgs& args_;
  const AttentionKernels& kernels_;
  const AttentionTasks& tasks_;
  SoftmaxState* const partial_states_;
  float* const partial_o_;
  const int group_;
  const float q_scale_;  // the scores come out in units of ln 2
  const int64_t o_stride_;
};

AttentionKernels KernelsOfLevel(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      break;
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return Avx2AttentionKernels();
    case Isa::kAvx512:
      return Avx512AttentionKernels();
    case Isa::kAvx512Vnni:
      return Avx512VnniAttentionKernels();
    case Isa::kAvx512Bf16:
      return Avx512Bf16AttentionKernels();
    case Isa::kAmx:
      return AmxAttentionKernels();
  }
  return PortableAttentionKernels();
}

}  // namespace

AttentionKernels AttentionKernelsOf(Isa isa) {
  static const bool ahead_to_first_level = NearestFastCache(ThisProcessor()) == CacheLevel::kFirst;
  AttentionKernels kernels = KernelsOfLevel(isa);
  kernels.ahead_to_first_level = ahead_to_first_level;
  return kernels;
}
AttentionScratch::AttentionScratch() : state_(std::make_unique<State>()) {}
AttentionScratch::~AttentionScratch() = default;

void ChunkAttention(ThreadPool& pool, Isa isa, const ChunkAttentionArgs& args,
                    AttentionScratch& scratch) {
  ChunkAttention(pool, AttentionKernelsOf(isa), args, scratch);
}

void ChunkAttention(ThreadPool& pool, const AttentionKernels& kernels,
                    const ChunkAttentionArgs& args, AttentionScratch& scratch) {
  assert(args.kv.num_kv_heads > 0 && args.num_heads % args.kv.num_kv_heads == 0);
  assert(args.q.cols == static_cast<int64_t>(args.num_heads) * args.kv.head_dim);
  assert(args.out.cols == args.q.cols && args.kv.chunk_tokens % 16 == 0);
  if (!args.wanted.empty()) {
    assert(args.wanted.size() == args.steps.size());
    ChunkAttentionArgs fewer = args;
    fewer.steps = std::exchange(fewer.wanted, {});
    return ChunkAttention(pool, kernels, fewer, scratch);
  }
  AttentionScratch::State& state = *scratch.state_;
  state.tasks.Plan(args, pool.threads(), kernels.shares_by_keys);
  if (std::ssize(state.partial_states) < state.tasks.num_partials()) {
    state.partial_states.resize(state.tasks.num_partials());
  }
  const int64_t o_stride = (args.kv.head_dim + 15) / 16 * 16;
  state.partial_o.Reserve(state.tasks.num_partials() * o_stride);
  const Call call(args, kernels, state.tasks, state.partial_states.data(), state.partial_o.data());
  while (std::ssize(state.workspaces) < pool.threads()) {
    state.workspaces.push_back(std::make_unique<Workspace>());
  }

  const auto run_all = [&](const auto& tasks, int64_t cost, bool by_rows) {
    const int64_t count = std::ssize(tasks);
    const auto work = [&](int thread, int64_t begin, int64_t end) {
      Workspace& ws = *state.workspaces[thread];
      ws.Reserve(call.max_rows(), args.kv.head_dim, o_stride, kernels.uses_pairs);
      if (args.kv.dtype == DType::kF8E4M3) ws.e4m3.Reserve(args.kv.head_dim);
      for (int64_t i = begin; i < end; ++i) {
        call.Run(tasks[i], i + 1 < count ? &tasks[i + 1] : nullptr, ws);
      }
    };
    if (cost * args.kv.head_dim < kCostOnCallingThread) {
      work(0, 0, count);
    } else if (by_rows) {
      pool.ParallelForStretches(count, 1, work);
    } else {
      pool.ParallelFor(count, 1, work);
    }
  };
  run_all(state.tasks.segment_tasks(), state.tasks.segment_cost(), state.tasks.segments_by_rows());
  run_all(state.tasks.row_tasks(), state.tasks.row_cost(), state.tasks.rows_by_rows());
}

}  // namespace refrain::kernels::cpu
