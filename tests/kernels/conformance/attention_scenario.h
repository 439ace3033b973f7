#ifndef REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_SCENARIO_H_
#define REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention_args.h"
#include "tests/kernels/conformance/kv_pool.h"

namespace refrain::kernels {

struct AttentionShape {
  int num_heads, num_kv_heads, head_dim, chunk_tokens;
  DType kv_dtype;
  int window_tokens = 0;

  std::string name() const;
};

// One call of ChunkAttention with its pool, plan and rows, put together piece by piece: runs of
// chunks, who attends to them, which slots take part. Every token holds its own random K and V, the
// unused rest of each chunk NaN. Positions are random but grow along a run, and are not key
// indexes.
class AttentionScenario {
 public:
  AttentionScenario(const AttentionShape& shape, int num_slots, int num_chunks);

  // A run of chunks that hold `tokens[i]` tokens each; returns its index. Token t of the run gets
  // the content of seed + t.
  int AddRun(const std::vector<int>& tokens, uint32_t seed);

  // The next keys of `slot` are the tokens of `run`, up to `tokens` of them (all if < 0). Runs must
  // be given to a slot in ascending order.
  void Attend(int run, int slot, int tokens = -1);

  // The slot takes part with `rows` rows, the last of its keys below `key_end` (all its keys if
  // < 0): what lies behind is cached and not seen. Rows are laid out in the order of these calls.
  void Activate(int slot, int rows, int key_end = -1);

  // Builds what Args needs; call once, after everything above.
  void Finish();

  // Makes scores small whole numbers in units of ln 2, for any rounding of q and K to bf16 or more,
  // so that weights are powers of two: attention by bf16 dot products is then as exact as by f32.
  // Call after Finish.
  void MakeScoresWhole();
  // V of the key that is a slot's middle row's own is infinite.
  void PoisonValues();
  // Rows that see key `key` of the first slot that has it look at nothing else, with scores of
  // about `scores` where all others are 0.
  void MakeOneKeyWin(int32_t key, float scores);
  // q of all rows, and K and V of every other token, are `x`, those of the others `other`.
  void MakeAllAlike(float x, float other);

  // Gives every token the K and V that it has in `other`, of the same runs and another KV type.
  void TakeKeysAndValuesOf(const AttentionScenario& other) { pool_.TakeElementsOf(other.pool_); }

  // Makes one head's query of every third row NaN. Call after Finish.
  void PoisonQueries();
  // Whether that head of the row, of [num_rows * num_heads], is one of them.
  bool poisoned(size_t row_and_head) const;

  // Makes the key of each slot's middle row what RopeAppend stores where a value is no finite
  // number: rows that see it are to be NaN, the others as they are without. Call after Finish.
  void PoisonKeys();
  // Makes it infinite, which RopeAppend stores nowhere.
  void MakeKeysInfinite();

  // Gives each slot the largest SlotStep::key_begin that leaves out no key in a row's window, as
  // the engine does; returns how many slots leave something out. Call after Finish, with a window.
  int LeaveOutKeysBeforeTheWindow();

  // The call. `out` becomes [num_rows, num_heads * head_dim].
  ChunkAttentionArgs Args(std::vector<float>& out);

  // Steps may be changed between calls of Args.
  std::vector<SlotStep>& steps() { return steps_; }
  int num_rows() const { return num_rows_; }
  int length(int slot) const { return lengths_[slot]; }
  // [num_rows, num_heads * head_dim]
  std::vector<float>& q() { return q_; }

 private:
  struct Run {
    int32_t chunk_begin, chunk_end, tokens;
    std::vector<RunSlot> slots;
  };

  // Calls fn(chunk, token) for the key of each slot's middle row.
  void ForMiddleKeys(const std::function<void(int32_t, int32_t)>& fn);
  // The chunk and the token in it.
  std::pair<int32_t, int32_t> PlaceOfKey(int slot, int32_t key) const;
  int32_t PositionOfKey(int slot, int32_t key) const;

  AttentionShape shape_;
  KvPool pool_;
  std::vector<Run> pending_;
  std::vector<int32_t> lengths_;  // [num_slots]
  std::vector<AttentionRun> runs_;
  std::vector<RunChunk> chunks_;
  std::vector<RunSlot> run_slots_;
  std::vector<SlotStep> steps_;
  std::vector<int32_t> row_positions_;
  std::vector<float> q_;
  float scale_;
  int num_rows_ = 0;
  int32_t next_chunk_ = 0;
};

// Slots with nothing in common: decode rows and prefill rows mixed, a slot that takes no part,
// lengths around the chunk and the 512-key segment.
AttentionScenario UnrelatedSlots(const AttentionShape& shape);

// A tree of shared runs with part-full inner chunks, a module that stands at different key indexes
// for different slots, a leaf shared in part, and lists of slots that are not ranges.
AttentionScenario SharedRuns(const AttentionShape& shape);

// The same tree, most slots with rows that end before their keys do: in the middle of a shared run,
// of a chunk, of a 512-key segment, at a slot's first key.
AttentionScenario RowsThatReadCachedKeys(const AttentionShape& shape);

// One of the three, as a test's parameter.
enum class Scenario { kUnrelated, kShared, kCached };
AttentionScenario MakeScenario(Scenario scenario, const AttentionShape& shape);

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_SCENARIO_H_
