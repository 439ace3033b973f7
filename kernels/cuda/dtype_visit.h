#ifndef REFRAIN_KERNELS_CUDA_DTYPE_VISIT_H_
#define REFRAIN_KERNELS_CUDA_DTYPE_VISIT_H_

#include <type_traits>

#include "kernels/dtype.h"

namespace refrain::kernels::cuda {

template <DType kDType>
using DTypeConstant = std::integral_constant<DType, kDType>;

// Calls fn(DTypeConstant<dtype>()) for the one of `kDTypes` that `dtype` is; false: it is none.
template <DType... kDTypes, class Fn>
bool VisitDType(DType dtype, const Fn& fn) {
  return ((dtype == kDTypes ? (fn(DTypeConstant<kDTypes>()), true) : false) || ...);
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_DTYPE_VISIT_H_
