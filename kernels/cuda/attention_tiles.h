#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_TILES_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_TILES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_args.h"
#include "kernels/cuda/attention_tile_arrays.h"
#include "kernels/cuda/attention_tile_list.h"

namespace refrain::kernels::cuda {

// What a kernel and a device want of a tile list. Fixed for one loaded model.
struct AttentionTileLimits {
  int num_heads = 0;
  int num_kv_heads = 0;
  int chunk_tokens = 64;
  int max_queries = 64;    // query rows x heads of one tile, of the kernel that will run it
  int num_blocks = 132;    // thread blocks that run at once: multiprocessors x blocks on each
  int free_queries = 64;   // queries whose arithmetic is hidden behind the reading of K and V
  int tile_keys = 16;      // keys that could be read in the time that a tile costs beside its keys
  int bundle_queries = 0;  // of a tile of several slots' own keys; 0: there are none
};

// Cuts one step's attention into tiles: integers only, made on the host, for every layer alike.
//
// A tile is a stretch of consecutive keys with the query rows that attend to them. In two-phase
// mode a run that several slots read is one stretch with the rows of all of them as one matrix (the
// chunk-first phase of ChunkAttention), what a slot has for itself is a stretch of its own, and
// both stand in one list, so that one launch does both phases. In paged mode, and for slots with so
// many rows that they fill tiles on their own, a slot's whole way is one stretch. Where a tile
// costs much beside its keys, what several slots with few rows have for themselves is bundled: one
// stretch of all their keys, one slot's behind the other's, of which each row sees its own slot's.
//
// The list is cut into `shares` of equal cost (bytes of K and V; arithmetic where that takes
// longer), wherever in a stretch that falls (split-KV); all heads use the same cut. How many shares
// there are: attention_shares.h. A row whose
// keys ended up in more than one tile leaves a partial state per tile, any other row's result goes
// straight to the output.
//
// With `reproducible` stretches are cut at every 512th key of the slot only, and a tile is one such
// segment or begins at the slot's first; the kernel finishes a segment's state before it merges it
// with what is to its left. Shared are segments that lie in one run as a whole.
//
// Per plan: everything here. Plan reads of `steps` the row counts, and key_begin to leave out what
// is behind every window; the list serves every step with the same row counts whose key_begin have
// not gone back (Serves), so decode steps reuse it until the tree changes. Per step: the kernel
// reads SlotStep, and clips tiles by key_begin, key_end and the causal limit of each row.
//
// Not thread-safe. Vectors keep their capacity: planning 256 slots takes well under 200 us.
class AttentionTiles {
 public:
  explicit AttentionTiles(const AttentionTileLimits& limits);

  void Plan(const AttentionPlanView& plan, std::span<const SlotStep> steps, AttentionMode mode,
            bool reproducible);

  // Whether the list made last may be used with these steps, the plan being the same.
  bool Serves(std::span<const SlotStep> steps) const;

  // The list as the kernels read it: an AttentionTileList and what it points into. To be copied to
  // the device as it is, aligned to 16 bytes. Valid until the next Plan.
  std::span<const std::byte> bytes() const { return bytes_; }
  const AttentionTileList& list() const {
    return *reinterpret_cast<const AttentionTileList*>(bytes_.data());
  }

  // What the list made last needs beside it: partial states' rows, and counters (zero before the
  // first launch that uses them; kernels leave them zero).
  int32_t num_partial_rows() const { return arrays_.num_partial_rows; }
  size_t num_counters() const { return arrays_.row_groups.size() * head_blocks_.count(); }

  const AttentionTileLimits& limits() const { return limits_; }
  HeadBlocks head_blocks() const { return head_blocks_; }

 private:
  // Consecutive keys with rows that attend to them, not yet cut into tiles. The stretch counts its
  // keys as its tiles do.
  struct Stretch {
    int32_t chunk_begin, chunk_end;  // into the chunks; may reach beyond the keys
    int32_t key_begin, key_end;
    int32_t member_begin, member_end;  // into stretch_members_
    int32_t num_rows;
    bool leftmost;  // nothing lies to the left of it in any member's keys
    bool bundled = false;
  };
  // A slot's part in a run; key indexes are the slot's.
  struct Entry {
    int32_t run;
    int32_t slot;
    int32_t key_begin;
    int32_t key_end;   // as in the plan
    int32_t keys_end;  // and as far as the run has room
    int32_t next;      // entry of the slot in a later run; -1: none
    bool shared;       // read together with other slots
  };
  struct Slot {
    int32_t first_entry = -1, last_entry = -1;
    int32_t row_group_begin = 0, row_group_end = 0;
    bool shares = false;  // few enough rows to be put together with others'
  };
  // A segment of a slot that is in a shared stretch.
  struct Covered {
    int32_t slot;
    int32_t begin;
  };

  void AddRowGroups(std::span<const SlotStep> steps, AttentionMode mode);
  void CollectEntries(const AttentionPlanView& plan);
  void ShareRuns(const AttentionPlanView& plan);
  bool WorthSharing() const;
  void ShareSegments(const AttentionPlanView& plan);
  int32_t RunChunks(const AttentionPlanView& plan, int32_t run);
  void AddSharedStretches(const AttentionPlanView& plan, std::span<const int32_t> entries,
                          int32_t key_begin, int32_t key_end);
  void AddOwnKeys(const AttentionPlanView& plan, int32_t slot);
  void AddOwnSegments(const AttentionPlanView& plan, int32_t slot);
  void AppendChunks(const AttentionPlanView& plan, const Entry& entry);
  void AddOwnStretches(int32_t slot, int32_t chunk_begin, int32_t key_begin, int32_t key_end);
  bool Bundles(int32_t slot) const;
  void AddToBundle(int32_t slot, int32_t chunk_begin, int32_t key_begin, int32_t key_end);
  int32_t ChunkBegin(const Stretch& stretch, int32_t key) const;
  void AddEmptyStretches();

  int32_t KeysSeen(const RowGroup& rows) const;
  int64_t Queries(const Stretch& stretch) const;
  int64_t KeyCost(const Stretch& stretch) const;
  int64_t FixedCost(const Stretch& stretch) const;
  void Cut();
  void CutAtChunks(const Stretch& stretch);
  void CutAtSegments(const Stretch& stretch);
  int32_t NearestChunkBorder(const Stretch& stretch, int64_t key) const;
  void Spend(int64_t cost);
  void AddTile(const Stretch& stretch, int32_t key_begin, int32_t key_end);

  AttentionTileLimits limits_;
  HeadBlocks head_blocks_;
  int32_t rows_per_tile_;
  bool reproducible_ = false;
  std::vector<SlotStep> steps_;  // that Plan was called with

  std::vector<Slot> slots_;
  std::vector<Entry> entries_;
  std::vector<int32_t> sharers_;     // entries of one run
  std::vector<int32_t> run_chunks_;  // [runs] where in the chunks the run is, -1: not yet
  std::vector<Covered> covered_;
  std::vector<Stretch> stretches_;
  std::vector<TileMember> stretch_members_;
  int64_t bundle_ = -1;  // stretch that the next slot's keys may go to

  int64_t total_cost_ = 0;
  int64_t spent_cost_ = 0;
  int num_shares_ = 0;

  AttentionTileArrays arrays_;
  std::vector<int32_t> first_keys_;  // [row_groups], scratch
  std::vector<std::byte> bytes_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_TILES_H_
