#ifndef REFRAIN_KERNELS_CUDA_EMULATED_RACE_CELL_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_RACE_CELL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace refrain::kernels::cuda::emulated {

// One access that the race detector remembers.
struct RaceAccess {
  uint32_t run = 0;    // of a block, counted over all launches; 0: none
  uint32_t epoch = 0;  // of its agent
  uint32_t place = 0;  // low bits of the address of the code
  uint16_t agent = 0;
  uint8_t mask = 0;  // bytes of the cell, 1 to 15
  bool write : 1 = false;
  bool atomic : 1 = false;
  bool async : 1 = false;  // by a copy or a product
};

// What was done to four bytes: up to four accesses, the newest in place of one that it makes
// superfluous, else of any.
class RaceCell {
 public:
  // The first access here that conflicts with `now` and is not `ordered(access)` before it, or
  // null. Keeps `now`.
  template <class OrderedFn>
  const RaceAccess* Touch(const RaceAccess& now, uint32_t first_run, const OrderedFn& ordered) {
    RaceAccess* place = nullptr;
    RaceAccess* empty = nullptr;
    for (RaceAccess& before : accesses_) {
      if (before.run < first_run || before.run == 0) {
        empty = &before;
        continue;
      }
      if ((before.mask & now.mask) == 0) continue;
      const bool conflict = (before.write || now.write) && !(before.atomic && now.atomic);
      const bool before_it = ordered(before);
      if (conflict && !before_it) return &before;
      // What conflicts with the old one conflicts with the new one, too. An atomic update comes
      // behind all those that it saw, for those who know only it.
      const bool covers = (before.mask & ~now.mask) == 0;
      if (covers && ((before.atomic && now.atomic) ||
                     (before_it && !now.atomic && (now.write || !before.write)))) {
        place = &before;
      }
    }
    if (place == nullptr) place = empty;
    if (place == nullptr) place = &accesses_[next_++ % accesses_.size()];
    *place = now;
    return nullptr;
  }

 private:
  std::array<RaceAccess, 4> accesses_{};
  uint32_t next_ = 0;
};

// Cells of all memory, made when touched.
class RaceCells {
 public:
  RaceCell& Of(uintptr_t address) {
    const uintptr_t page = address / kPageBytes;
    if (page != last_page_) {
      std::unique_ptr<Page>& cells = pages_[page];
      if (cells == nullptr) cells = std::make_unique<Page>();
      last_page_ = page;
      last_cells_ = cells.get();
    }
    return (*last_cells_)[address % kPageBytes / 4];
  }
  // Frees all where there are more than `most` pages: what was kept is forgotten.
  void Limit(size_t most) {
    if (pages_.size() <= most) return;
    pages_.clear();
    last_page_ = ~uintptr_t{0};
  }

 private:
  static constexpr size_t kPageBytes = 4096;
  using Page = std::array<RaceCell, kPageBytes / 4>;

  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_page_ = ~uintptr_t{0};
  Page* last_cells_ = nullptr;
};

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_RACE_CELL_H_
