#ifndef REFRAIN_ENGINE_GRAMMAR_ID_TABLE_H_
#define REFRAIN_ENGINE_GRAMMAR_ID_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace refrain::engine {

// Ids by the hashes of what they stand for, which the caller keeps and compares. One array of
// places that are looked at in turn: no memory before the first id, and a copy costs one memcpy,
// as every token of every matcher makes and copies some.
//
// A value. One thread. Cannot fail.
class IdTable {
 public:
  // The id among those of this hash for which `is_it(id)`.
  template <typename IsIt>
  std::optional<uint32_t> Find(uint32_t hash, const IsIt& is_it) const {
    if (slots_.empty()) return std::nullopt;
    for (size_t i = hash & mask(); slots_[i].id != kFree; i = (i + 1) & mask()) {
      if (slots_[i].hash == hash && is_it(slots_[i].id)) return slots_[i].id;
    }
    return std::nullopt;
  }

  void Insert(uint32_t hash, uint32_t id) {
    if (2 * (num_ids_ + 1) > slots_.size()) Grow();
    Put({hash, id});
    ++num_ids_;
  }

  void Clear() {
    slots_.clear();
    num_ids_ = 0;
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  struct Slot {
    uint32_t hash = 0;
    uint32_t id = kFree;
  };

  size_t mask() const { return slots_.size() - 1; }
  void Put(const Slot& slot) {
    size_t i = slot.hash & mask();
    while (slots_[i].id != kFree) i = (i + 1) & mask();
    slots_[i] = slot;
  }
  void Grow() {
    const std::vector<Slot> old =
        std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 16 : 2 * slots_.size()));
    for (const Slot& slot : old) {
      if (slot.id != kFree) Put(slot);
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  size_t num_ids_ = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_ID_TABLE_H_
