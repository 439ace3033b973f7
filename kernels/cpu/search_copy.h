#ifndef REFRAIN_KERNELS_CPU_SEARCH_COPY_H_
#define REFRAIN_KERNELS_CPU_SEARCH_COPY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/device.h"

namespace refrain::kernels::cpu {

// A second form of a weight W, for ArgMaxSearch alone: W' of bytes with one scale for each output
// row, which tiles multiply as they are. Unpacking W takes more time than they do, and more than
// memory takes to send as many bytes.
//
// Products with W' are off by more than those with W: bounds() tells by how much. Immutable.
class SearchCopy {
 public:
  // `row(i, out)` writes row i, [k], on any thread; all are finite, k is at most kMaxByteK.
  // `exact`: the bounds of W. RESOURCE_EXHAUSTED: no memory.
  static absl::StatusOr<SearchCopy> Make(int64_t n, int64_t k,
                                         const std::function<void(int64_t, float*)>& row,
                                         const ProductBounds& exact, Device& device,
                                         ThreadPool& pool);

  BytePanels panels() const;
  // norms: |W' - W| + kByteShare |W|, a little more; terms as those of W.
  const ProductBounds& bounds() const { return bounds_; }
  size_t resident_bytes() const {
    return memory_.bytes() + (scales_.size() + bounds_.norms.size()) * sizeof(float);
  }

 private:
  SearchCopy() = default;

  DeviceBuffer memory_;
  std::vector<float> scales_;  // [panels, 16]
  ProductBounds bounds_;
  int64_t steps_ = 0;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_SEARCH_COPY_H_
