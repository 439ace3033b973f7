#ifndef REFRAIN_KERNELS_CUDA_PUT_POSITIONS_H_
#define REFRAIN_KERNELS_CUDA_PUT_POSITIONS_H_

#include <cstdint>

namespace refrain::kernels::cuda {

class Stream;

struct TokenPosition {
  int64_t token;  // index into the pool's tokens
  int32_t position;
};

// table[token] = position for each of them, no token twice. Pointers are device memory; the launch
// keeps its failure in the stream.
struct PutPositionsLaunch {
  int64_t count = 0;
  const TokenPosition* positions = nullptr;  // [count]
  int32_t* table = nullptr;                  // [pool tokens]
};
void LaunchPutPositions(Stream& stream, const PutPositionsLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_PUT_POSITIONS_H_
