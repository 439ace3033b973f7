#ifndef REFRAIN_TESTS_KERNELS_CUDA_FAKE_CUDA_RUNTIME_H_
#define REFRAIN_TESTS_KERNELS_CUDA_FAKE_CUDA_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <map>
#include <string>

// Stands in for libcudart in the program that it is linked into: calls do nothing and succeed, but
// for those that a test wants to fail. For what runtime_cuda.cc makes of errors; one thread.

namespace refrain::testing {

struct FakeCudaRuntime {
  int devices = 1;
  std::map<int, cudaError_t> sick_devices;   // whose properties cannot be read
  std::map<std::string, cudaError_t> fails;  // by the call's name
  cudaError_t last_error = cudaSuccess;      // that no cudaGetLastError has taken
};

FakeCudaRuntime& TheFakeCudaRuntime();

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_KERNELS_CUDA_FAKE_CUDA_RUNTIME_H_
