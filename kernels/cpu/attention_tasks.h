#ifndef REFRAIN_KERNELS_CPU_ATTENTION_TASKS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_TASKS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_args.h"
#include "kernels/cpu/attention_kernels.h"

namespace refrain::kernels::cpu {

// How one ChunkAttention call is cut into tasks: integers only, no arithmetic on keys or values.
// Made by Plan from the arguments and the thread count, read by attention.cc. Nothing in it hangs
// on the layer: the calls of a step differ in nothing else, but for a last one that wants fewer
// rows, and all but the first find their tasks made. Not thread-safe; the vectors keep their
// capacity from call to call.
class AttentionTasks {
 public:
  // Some of one slot's keys, one after the other. `partial` >= 0: its states are computed by
  // segment tasks, that of row i, KV head h, head g of the group at partial + h *
  // partial_head_stride + i * group + g.
  struct Segment {
    int32_t begin, end;  // key indexes
    int64_t partial = -1;
    int64_t partial_head_stride = 0;
  };

  struct Slot {
    bool active = false;
    std::vector<KeyPiece> pieces;   // cover [key_begin or before, key_end)
    std::vector<Segment> shared;    // scratch of Plan
    std::vector<Segment> segments;  // ascending, cover [key_begin, key_end)
  };

  struct TaskRow {
    int32_t row;        // in q
    int32_t key_limit;  // sees keys of the task below this
  };

  // Phase one: rows of one or several slots against one segment, or against several that follow one
  // another, each kMaxSegmentKeys long but the last; into one partial state per row and head.
  struct SegmentTask {
    int32_t slot;  // whose pieces and key indexes are used
    int32_t kv_head;
    int32_t segment_begin, begin, end;
    int32_t row_begin, row_end;  // into task_rows
    int64_t partial;             // of the first row and head
    int64_t cost;
  };

  // Phase two: rows [row_begin, row_end) of one slot's rows over all its segments, into `out`.
  struct RowTask {
    int32_t slot;
    int32_t kv_head;
    int32_t row_begin, row_end;
    int64_t cost;  // without what phase one does
  };

  // Copies what it reads of `args`. Returns false, at once, where that is what it was the last
  // time. `shares_by_keys`: shared keys are divided among the threads by keys and KV heads while
  // those give every thread enough, and all rows go with each; else by rows, too, so that a thread
  // keeps its rows through both phases, but each reads all keys.
  bool Plan(const ChunkAttentionArgs& args, int threads, bool shares_by_keys);

  const Slot& slot(int32_t i) const { return slots_[i]; }
  std::span<const TaskRow> task_rows() const { return task_rows_; }
  // Longest first, or by their rows (below); row tasks of many rows by KV heads inside a thread's
  // stretch.
  std::span<const SegmentTask> segment_tasks() const { return segment_tasks_; }
  std::span<const RowTask> row_tasks() const { return row_tasks_; }
  // Whether the tasks are ordered by their rows: a thread that goes through a stretch of its own of
  // either list then merges what it has computed, and reads the rows of q that it has made.
  bool segments_by_rows() const { return segments_by_rows_; }
  bool rows_by_rows() const { return rows_by_rows_; }
  int64_t num_partials() const { return num_partials_; }
  int64_t segment_cost() const { return segment_cost_; }
  int64_t row_cost() const { return row_cost_; }

 private:
  // A slot's part in a run that several share.
  struct Sharer {
    int32_t slot;
    int32_t key_begin;  // key index of the run's first token
    int32_t tokens;     // of the run, from its beginning, that all rows of the slot see
  };

  // What Plan reads of its arguments.
  struct Inputs {
    std::vector<AttentionRun> runs;
    std::vector<RunChunk> chunks;
    std::vector<RunSlot> slots;
    std::vector<SlotStep> steps;
    KvPoolView kv;
    int num_heads = 0;
    int window_tokens = 0;
    AttentionMode mode = AttentionMode::kTwoPhase;
    bool reproducible = false;
    int threads = 0;
    bool shares_by_keys = false;
  };

  bool Planned(const ChunkAttentionArgs& args, int threads, bool shares_by_keys) const;
  void CollectPieces(const ChunkAttentionArgs& args);
  void ShareRuns(const ChunkAttentionArgs& args);
  void ShareBetween(const ChunkAttentionArgs& args, std::span<Sharer> sharers);
  int32_t StretchKeys(const ChunkAttentionArgs& args, std::span<const Sharer> sharers,
                      int32_t keys) const;
  void ChooseCut(const ChunkAttentionArgs& args);
  void AddShared(const ChunkAttentionArgs& args, std::span<const Sharer> sharers, int32_t begin,
                 int32_t end);
  void CutSegments(const ChunkAttentionArgs& args, int32_t slot, int32_t segment_keys);
  void SplitSlot(const ChunkAttentionArgs& args, int32_t slot);
  void AddSegmentTasks(const ChunkAttentionArgs& args, SegmentTask task, size_t rows,
                       int32_t rows_per_task);

  void Order(int threads);
  void OrderByHeads(int threads);

  Inputs inputs_;
  bool planned_ = false;       // for inputs_
  int32_t rows_per_task_ = 1;  // rows of q, each with the heads of one group
  // Of the run that is being shared.
  bool reads_once_ = false;  // each of its keys by one task, for as many rows as a task may have
  int32_t shared_rows_per_task_ = 1;
  int32_t segments_per_task_ = 1;
  int64_t enough_tasks_ = 1;  // for every thread to be busy until the end
  std::vector<Slot> slots_;
  std::vector<TaskRow> task_rows_;
  std::vector<SegmentTask> segment_tasks_;
  std::vector<RowTask> row_tasks_;
  std::vector<Sharer> sharers_;
  int64_t num_partials_ = 0;
  int64_t segment_cost_ = 0;
  int64_t row_cost_ = 0;
  bool segments_by_rows_ = false;
  bool rows_by_rows_ = false;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_TASKS_H_
