#ifndef REFRAIN_TESTS_KERNELS_CUDA_RANDOM_PLAN_H_
#define REFRAIN_TESTS_KERNELS_CUDA_RANDOM_PLAN_H_

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "kernels/attention_args.h"

namespace refrain::kernels {

// Sequences that join, grow and leave at random, and the attention plan of those that are there:
// what the prefix tree makes, without one. A joiner starts with nothing, with part of another
// sequence's keys (whole chunks, and a last one read in part), or with a module that stands
// wherever its keys begin. Inner chunks may be part-full. Integers only; chunk contents are the
// caller's, who is told of every new token.
class RandomPlan {
 public:
  struct Limits {
    int num_slots = 8;
    int num_chunks = 256;
    int chunk_tokens = 16;
    int max_join_chunks = 6;  // new chunks of a joiner
    int max_rows = 20;        // of a sequence in one step
  };
  struct NewToken {
    int32_t chunk;
    int32_t token;
    int32_t position;
  };

  RandomPlan(const Limits& limits, uint32_t seed);

  // One sequence joins, leaves, or, if neither can be, nothing happens.
  void JoinOrLeave();
  // Every sequence gets new keys, as many as it has rows in this step, 0 for some; rows are
  // numbered in random order of slots.
  void Step(bool decode_only);

  AttentionPlanView view() const { return {runs_, run_chunks_, run_slots_}; }
  const std::vector<SlotStep>& steps() const { return steps_; }
  int num_rows() const { return num_rows_; }
  const std::vector<int32_t>& row_positions() const { return row_positions_; }
  // Tokens written since the last call.
  std::vector<NewToken> TakeNewTokens() { return std::exchange(new_tokens_, {}); }
  int num_sequences() const;
  int free_chunks() const { return static_cast<int>(free_.size()); }

 private:
  struct Chunk {
    int tokens = 0;
    int readers = 0;
    double rank = 0;  // ascends along every sequence
    std::vector<int32_t> positions;
  };
  struct Piece {
    int32_t chunk;
    int tokens;  // of the chunk, that the sequence reads
  };
  struct Sequence {
    std::vector<Piece> pieces;
    bool owns_last = false;  // may write behind the last piece
    int keys = 0;
  };

  int Random(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }
  void Join(Sequence& sequence);
  void Leave(Sequence& sequence);
  void Read(Sequence& sequence, int32_t chunk, int tokens);
  bool Append(Sequence& sequence, int tokens, double rank_below);
  void MakePlan();

  Limits limits_;
  std::minstd_rand random_;
  std::vector<Chunk> chunks_;
  std::vector<int32_t> free_;
  std::vector<Sequence> sequences_;  // [num_slots], without pieces where the slot is free
  std::vector<std::vector<Piece>> modules_;
  std::vector<AttentionRun> runs_;
  std::vector<RunChunk> run_chunks_;
  std::vector<RunSlot> run_slots_;
  std::vector<SlotStep> steps_;
  std::vector<int32_t> row_positions_;
  std::vector<NewToken> new_tokens_;
  double top_rank_ = 1;
  int num_rows_ = 0;
};

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CUDA_RANDOM_PLAN_H_
