#ifndef REFRAIN_SERVER_METRICS_LABELLED_COUNTS_H_
#define REFRAIN_SERVER_METRICS_LABELLED_COUNTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "engine/annotated_mutex.h"

namespace refrain::server::metrics {

// Counts by labels of which there may be many thousands (keys times routes): who counts waits for
// no page that is made of them. Any thread. Cannot fail.
template <typename Labels>
class LabelledCounts {
 public:
  void Add(Labels labels) {
    MutexLock lock(mutex_);
    ++counts_[std::move(labels)];
  }

  // Calls `visit(labels, count)` for each, in order, outside the lock. What is added meanwhile may
  // be among them.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    Batch batch;
    size_t size = kBatch;
    for (const Labels* last = nullptr; size == kBatch; last = batch.back().labels) {
      size = ReadBehind(last, &batch);
      for (size_t i = 0; i < size; ++i) visit(*batch[i].labels, batch[i].count);
    }
  }

 private:
  // Read under one lock: some tens of microseconds where none is in the processor's cache.
  static constexpr size_t kBatch = 256;
  struct Entry {
    // A key in the map, good without the lock: nodes of a std::map do not move, and none is erased.
    const Labels* labels = nullptr;
    uint64_t count = 0;
  };
  using Batch = std::array<Entry, kBatch>;

  // How many there are behind `last` (null: from the first one on), a batch at most.
  size_t ReadBehind(const Labels* last, Batch* batch) const {
    MutexLock lock(mutex_);
    size_t size = 0;
    for (auto node = last == nullptr ? counts_.begin() : counts_.upper_bound(*last);
         node != counts_.end() && size < kBatch; ++node) {
      (*batch)[size++] = {&node->first, node->second};
    }
    return size;
  }

  mutable Mutex mutex_;
  std::map<Labels, uint64_t> counts_ REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_LABELLED_COUNTS_H_
