#ifndef REFRAIN_KERNELS_CUDA_EMULATED_CODE_PLACE_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_CODE_PLACE_H_

#include <cstdint>
#include <string>

namespace refrain::kernels::cuda::emulated {

// " (file:line)" of an address in this program's code, of which only the low bits are known, by
// addr2line and as far as it was compiled with -g1; "" for 0. Slow: for errors.
std::string DescribePlace(uint32_t address_bits);

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_CODE_PLACE_H_
