#ifndef REFRAIN_ENGINE_PENDING_PREFIXES_H_
#define REFRAIN_ENGINE_PENDING_PREFIXES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcache/types.h"

namespace refrain::engine {

using kvcache::SequenceId;

// In-flight sharing (DESIGN 4.3): which whole chunks of prompts are being computed now, and which
// waiting sequences hold off because another one, the producer, computes their next chunk. What is
// left of a prompt behind its whole chunks counts as one more, which equal prompts have in common:
// it can be joined as soon as it is there, by a copy. Who computes a prompt to its last whole chunk
// computes that in the same step or with its next rows, which come before any other of its tenant
// is admitted. One whose longer prompt begins alike does not wait for it.
//
// A waiting sequence is `held` until the last chunk that it has in common with its producer is
// published, or the producer stops for whatever reason; then it is released and told to wait anew,
// and the first of them to run becomes the producer of what is left. Keys are PrefixKeyMaker's. Two
// different prefixes with one key would make a sequence wait for nothing, never share wrongly: what
// is shared is decided by the cache, which compares ids.
//
// Knows keys only, neither cache nor scheduler. Work per call is in proportion to the chunks and
// sequences it concerns. Engine thread only; cannot fail.
class PendingPrefixes {
 public:
  struct Released {
    SequenceId sequence{};
    size_t present = 0;  // of its chunks, by what was published
    friend bool operator==(const Released&, const Released&) = default;
  };

  // Sequence `id` waits and has `present` chunks of `keys`; the next one, if any, it lacks. Keys
  // stay valid until Forget or Start. The result: whether it is held.
  bool Wait(SequenceId id, std::span<const uint64_t> keys, size_t present);
  // It waits no longer, and does not run.
  void Forget(SequenceId id);

  // A sequence (that may have been waiting) runs, and computes its chunks from `present` on; it is
  // the producer of those that no other one computes already. Added to `held`: waiting sequences
  // that hold off from now on. False when there are others: to be asked again, as who computes them
  // may stop.
  bool Start(SequenceId id, std::span<const uint64_t> keys, size_t present,
             std::vector<SequenceId>* held);
  // The first `chunks` of the producer's chunks are published. Added to `released`: sequences that
  // are no longer held; each is to be told to Wait again.
  void Published(SequenceId id, size_t chunks, std::vector<Released>* released);
  // The producer computes nothing more of its prompt.
  void Stop(SequenceId id, std::vector<Released>* released);

  bool held(SequenceId id) const;
  // Who computes the next chunk of a held sequence.
  std::optional<SequenceId> ProducerOf(SequenceId id) const;
  size_t held_count() const { return held_count_; }
  bool empty() const {
    return waiting_.empty() && producing_.empty() && producer_of_.empty() && held_.empty() &&
           lacking_.empty();
  }

 private:
  struct Waiting {
    std::span<const uint64_t> keys;
    size_t present = 0;
    std::optional<uint64_t> held_by_key;  // the last chunk in common with the producer
    SequenceId producer{};
  };
  struct Producing {
    std::vector<uint64_t> keys;  // of its prompt
    size_t published = 0;        // of them, or there when it started
  };

  void Hold(SequenceId id, Waiting* waiting);
  void RemoveFrom(absl::flat_hash_map<uint64_t, std::vector<SequenceId>>* lists, uint64_t key,
                  SequenceId id);
  void ReleaseKey(SequenceId producer, uint64_t key, size_t published,
                  std::vector<Released>* released);

  absl::flat_hash_map<SequenceId, Waiting> waiting_;
  absl::flat_hash_map<SequenceId, Producing> producing_;
  absl::flat_hash_map<uint64_t, SequenceId> producer_of_;           // key of a pending chunk
  absl::flat_hash_map<uint64_t, std::vector<SequenceId>> held_;     // by Waiting::held_by_key
  absl::flat_hash_map<uint64_t, std::vector<SequenceId>> lacking_;  // not held, by the next key
  size_t held_count_ = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_PENDING_PREFIXES_H_
