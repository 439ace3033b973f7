#include "tests/kernels/cuda/fake_cuda_runtime.h"

#include <utility>

namespace refrain::testing {

FakeCudaRuntime& TheFakeCudaRuntime() {
  static FakeCudaRuntime runtime;
  return runtime;
}

}  // namespace refrain::testing

namespace {

using refrain::testing::TheFakeCudaRuntime;

char memory[64];  // all that is ever handed out

cudaError_t Told(cudaError_t error) {
  if (error != cudaSuccess) TheFakeCudaRuntime().last_error = error;
  return error;
}

cudaError_t Call(const char* name) {
  const auto failing = TheFakeCudaRuntime().fails.find(name);
  return Told(failing == TheFakeCudaRuntime().fails.end() ? cudaSuccess : failing->second);
}

template <class T>
cudaError_t Make(const char* name, T** made) {
  *made = reinterpret_cast<T*>(memory);
  return Call(name);
}

}  // namespace

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(TheFakeCudaRuntime().last_error, cudaSuccess);
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
}
const char* cudaGetErrorString(cudaError_t) { return "as the test wants it"; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = TheFakeCudaRuntime().devices;
  return Call("cudaGetDeviceCount");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  const auto& sick = TheFakeCudaRuntime().sick_devices;
  if (const auto found = sick.find(device); found != sick.end()) return Told(found->second);
  *prop = {};
  prop->name[0] = static_cast<char>('A' + device);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return Call("cudaSetDevice"); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = *highest = 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t) { return Make("cudaMalloc", data); }
cudaError_t cudaFree(void*) { return Call("cudaFree"); }
cudaError_t cudaMallocHost(void** data, size_t) { return Make("cudaMallocHost", data); }
cudaError_t cudaFreeHost(void*) { return Call("cudaFreeHost"); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = 7;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return Make("cudaStreamCreateWithPriority", stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return Call("cudaStreamSynchronize"); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return Call("cudaStreamWaitEvent");
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return Call("cudaStreamBeginCapture");
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  return Make("cudaStreamEndCapture", graph);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
  return Make("cudaGraphInstantiate", executable);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return Call("cudaGraphLaunch"); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }

cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return Call("cudaMemcpyAsync");
}
cudaError_t cudaMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, cudaMemcpyKind,
                              cudaStream_t) {
  return Call("cudaMemcpy2DAsync");
}
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return Call("cudaMemsetAsync"); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return Make("cudaEventCreateWithFlags", event);
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return Call("cudaEventRecord"); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return Call("cudaEventSynchronize"); }
cudaError_t cudaEventQuery(cudaEvent_t) { return Call("cudaEventQuery"); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return Call("cudaEventElapsedTime");
}

}  // extern "C"
