// FlashInfer's decode over the rows of gpu_attention_bench's grid, for the comparison only: plain
// paged decode, where sequences name the same pages, and cascade (shared pages by the prefill
// kernel, the others by decode, then merged). It is not part of any build: FlashInfer stays outside
// of this repository. How to fetch it and build this: docs/gpu.md.
//
//   flashinfer_bench [ROUNDS]
//
// Prints a line of JSON per row. Cascade's result is compared with plain decode's first. As there,
// K and V are cold: one graph goes from layer to layer. Launches overlap (programmatic dependent
// launch), as ours do; the columns `serial` are without. Its last merge of a cascade is never
// launched early.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <flashinfer/attention/cascade.cuh>
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <memory>
#include <random>
#include <vector>

namespace {

constexpr int kSlots = 32, kHeads = 32, kHeadDim = 128, kPage = 64;
constexpr int64_t kPageElements = int64_t{kHeads} * kPage * kHeadDim;
constexpr size_t kWorkspaceBytes = size_t{128} << 20;

using flashinfer::MaskMode;
using flashinfer::PosEncodingMode;
using flashinfer::QKVLayout;
using DecodeParams = flashinfer::BatchDecodeParams<half, half, half, int32_t>;
using PrefillParams = flashinfer::BatchPrefillPagedParams<half, half, half, int32_t>;
using Variant = flashinfer::DefaultAttention<false, false, false, false>;
using Pages = flashinfer::paged_kv_t<half, int32_t>;

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* Allocate(size_t count) {
  T* data = nullptr;
  Must(cudaMalloc(&data, count * sizeof(T)), "cudaMalloc");
  return data;
}

template <class T>
T* Upload(const std::vector<T>& values) {
  T* const data = Allocate<T>(values.size());
  Must(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return data;
}

template <class T>
T* At(void* base, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}

struct Workspace {
  void* floats = Allocate<char>(kWorkspaceBytes);
  void* ints = Allocate<char>(kWorkspaceBytes);
  void* pinned = nullptr;
  Workspace() { Must(cudaMallocHost(&pinned, kWorkspaceBytes), "cudaMallocHost"); }
};

// Which pages each sequence of a call reads, in host memory and on the device.
struct PageTable {
  std::vector<int32_t> indptr = {0}, indices, last;
  int32_t *device_indptr = nullptr, *device_indices = nullptr, *device_last = nullptr;

  void AddSequence(int first_page, int pages) {
    for (int i = 0; i < pages; ++i) indices.push_back(first_page + i);
  }
  void EndSequence() {
    indptr.push_back(static_cast<int32_t>(indices.size()));
    last.push_back(kPage);
  }
  void ToDevice() {
    device_indptr = Upload(indptr);
    device_indices = Upload(indices);
    device_last = Upload(last);
  }
  int sequences() const { return static_cast<int>(last.size()); }
  Pages View(half* keys, half* values) const {
    return Pages(kHeads, kPage, kHeadDim, sequences(), QKVLayout::kHND, keys, values,
                 device_indices, device_indptr, device_last);
  }
};

// One decode call: a row per sequence of `table`.
class Decode {
 public:
  explicit Decode(PageTable table) : table_(std::move(table)) {
    table_.ToDevice();
    const auto estimate = flashinfer::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<
        1, kHeadDim, PosEncodingMode::kNone, Variant, DecodeParams>;
    Must((flashinfer::DecodePlan<kHeadDim, PosEncodingMode::kNone, Variant, DecodeParams>(
             space_.floats, kWorkspaceBytes, space_.ints, space_.pinned, kWorkspaceBytes, plan_,
             table_.indptr.data(), table_.sequences(), kHeads, kPage, false, nullptr, estimate)),
         "DecodePlan");
    Must(cudaDeviceSynchronize(), "DecodePlan");
  }

  // `early`: it starts while the launch before ends.
  void Run(half* q, half* keys, half* values, half* out, float* lse, bool early,
           cudaStream_t stream) {
    DecodeParams params(q, nullptr, table_.View(keys, values), out, lse, nullptr, kHeads,
                        kHeads * kHeadDim, kHeadDim, -1, 0.0f, 0.08838834764f, 1.0f, 1e4f);
    params.request_indices = At<int32_t>(space_.ints, plan_.request_indices_offset);
    params.kv_tile_indices = At<int32_t>(space_.ints, plan_.kv_tile_indices_offset);
    params.o_indptr = At<int32_t>(space_.ints, plan_.o_indptr_offset);
    params.kv_chunk_size_ptr = At<int32_t>(space_.ints, plan_.kv_chunk_size_ptr_offset);
    params.padded_batch_size = plan_.padded_batch_size;
    half* const partial = plan_.split_kv ? At<half>(space_.floats, plan_.v_offset) : nullptr;
    float* const sums = plan_.split_kv ? At<float>(space_.floats, plan_.s_offset) : nullptr;
    Must((flashinfer::BatchDecodeWithPagedKVCacheDispatched<kHeadDim, PosEncodingMode::kNone,
                                                            Variant>(params, partial, sums, early,
                                                                     stream)),
         "decode");
  }

 private:
  PageTable table_;
  Workspace space_;
  flashinfer::DecodePlanInfo plan_;
};

// All rows over the shared pages, as a prefill of one sequence that masks nothing.
class Shared {
 public:
  explicit Shared(int pages) {
    table_.AddSequence(0, pages);
    table_.EndSequence();
    table_.ToDevice();
    rows_ = Upload(rows_host_);
    Must((flashinfer::PrefillPlan<int32_t>(
             space_.floats, kWorkspaceBytes, space_.ints, space_.pinned, kWorkspaceBytes, plan_,
             rows_host_.data(), table_.indptr.data(), kSlots, 1, kHeads, kHeads, kHeadDim, kHeadDim,
             kPage, false, sizeof(half), -1, -1, false, 0, 0, nullptr)),
         "PrefillPlan");
    Must(cudaDeviceSynchronize(), "PrefillPlan");
    if (plan_.cta_tile_q != kTile) {
      std::fprintf(stderr, "tiles of %d rows: this bench has %d only\n",
                   static_cast<int>(plan_.cta_tile_q), kTile);
      std::exit(1);
    }
  }

  void Run(half* q, half* keys, half* values, half* out, float* lse, bool early,
           cudaStream_t stream) {
    PrefillParams params;
    params.q = q;
    params.paged_kv = table_.View(keys, values);
    params.q_indptr = rows_;
    params.o = out;
    params.lse = lse;
    params.group_size = flashinfer::uint_fastdiv(1);
    params.num_qo_heads = kHeads;
    params.q_stride_n = kHeads * kHeadDim;
    params.q_stride_h = kHeadDim;
    params.window_left = -1;
    params.sm_scale = 0.08838834764f;
    params.rope_rcp_scale = params.rope_rcp_theta = 1.0f;
    params.request_indices = At<int32_t>(space_.ints, plan_.request_indices_offset);
    params.qo_tile_indices = At<int32_t>(space_.ints, plan_.qo_tile_indices_offset);
    params.kv_tile_indices = At<int32_t>(space_.ints, plan_.kv_tile_indices_offset);
    params.o_indptr = At<int32_t>(space_.ints, plan_.o_indptr_offset);
    params.kv_chunk_size_ptr = At<int32_t>(space_.ints, plan_.kv_chunk_size_ptr_offset);
    params.max_total_num_rows = plan_.total_num_rows;
    params.padded_batch_size = plan_.padded_batch_size;
    half* partial = nullptr;
    float* sums = nullptr;
    if (plan_.split_kv) {
      params.merge_indptr = At<int32_t>(space_.ints, plan_.merge_indptr_offset);
      partial = At<half>(space_.floats, plan_.v_offset);
      sums = At<float>(space_.floats, plan_.s_offset);
    }
    Must((flashinfer::BatchPrefillWithPagedKVCacheDispatched<true, kTile, kHeadDim, kHeadDim,
                                                             PosEncodingMode::kNone, false,
                                                             MaskMode::kNone, Variant>(
             params, partial, sums, early, stream)),
         "prefill");
  }

 private:
  static constexpr int kTile = 64;
  PageTable table_;
  std::vector<int32_t> rows_host_ = {0, kSlots};
  int32_t* rows_ = nullptr;
  Workspace space_;
  flashinfer::PrefillPlanInfo plan_;
};

// Median microseconds of one layer.
template <class Fn>
double TimeGraph(int layers, int rounds, bool early, const Fn& run) {
  const int launches = std::max(layers, 16 / layers * layers);
  cudaStream_t stream;
  Must(cudaStreamCreate(&stream), "cudaStreamCreate");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  Must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; ++i) run(i % layers, early, stream);
  Must(cudaStreamEndCapture(stream, &graph), "capture");
  Must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  cudaEvent_t begin, end;
  Must(cudaEventCreate(&begin), "cudaEventCreate");
  Must(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = 0; i <= rounds; ++i) {
    Must(cudaEventRecord(begin, stream), "cudaEventRecord");
    Must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    Must(cudaEventRecord(end, stream), "cudaEventRecord");
    Must(cudaStreamSynchronize(stream), "replay");
    float milliseconds = 0;
    Must(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (i > 0) times.push_back(milliseconds);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3 / launches;
}

struct Times {
  double early = 0, serial = 0;  // whether a launch starts while the one before ends
};

template <class Fn>
Times TimeLayers(int layers, int rounds, const Fn& run) {
  return {TimeGraph(layers, rounds, true, run), TimeGraph(layers, rounds, false, run)};
}

std::vector<half> Download(const half* from) {
  std::vector<half> values(size_t{kSlots} * kHeads * kHeadDim);
  Must(cudaMemcpy(values.data(), from, values.size() * sizeof(half), cudaMemcpyDeviceToHost),
       "copy");
  return values;
}

double Distance(const std::vector<half>& a, const std::vector<half>& b) {
  double distance = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = __half2float(a[i]), y = __half2float(b[i]);
    distance += (x - y) * (x - y);
    length += y * y;
  }
  return std::sqrt(distance / length);
}

void RunRow(int keys, int shared_keys, int rounds) {
  const int shared = shared_keys / kPage, own = keys / kPage - shared;
  const int64_t pages = shared + int64_t{kSlots} * own;
  const int64_t layer_elements = 2 * pages * kPageElements;
  const double kv_bytes = static_cast<double>(layer_elements) * sizeof(half);
  cudaDeviceProp device;
  Must(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  const int layers = std::clamp(static_cast<int>(4.0 * device.l2CacheSize / kv_bytes + 1), 4, 32);

  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<half> some(size_t{1} << 20);
  for (half& x : some) x = __float2half(normal(random));
  half* const cache = Allocate<half>(layers * layer_elements);
  for (int64_t done = 0; done < layers * layer_elements;) {
    const int64_t count =
        std::min<int64_t>(some.size() - 4096 * (done % 97), layers * layer_elements - done);
    Must(cudaMemcpy(cache + done, some.data(), count * sizeof(half), cudaMemcpyHostToDevice),
         "copy");
    done += count;
  }
  some.resize(size_t{kSlots} * kHeads * kHeadDim);
  half* const q = Upload(some);
  half* const out = Allocate<half>(some.size());
  half* const other = Allocate<half>(some.size());
  float* const lse = Allocate<float>(kSlots * kHeads);
  float* const other_lse = Allocate<float>(kSlots * kHeads);
  const auto keys_of = [&](int layer) { return cache + layer * layer_elements; };
  const auto values_of = [&](int layer) { return keys_of(layer) + layer_elements / 2; };

  PageTable all, tails;
  for (int slot = 0; slot < kSlots; ++slot) {
    all.AddSequence(0, shared);
    all.AddSequence(shared + slot * own, own);
    all.EndSequence();
    tails.AddSequence(shared + slot * own, own);
    tails.EndSequence();
  }
  Decode plain(all);
  const auto run_plain = [&](int layer, bool early, cudaStream_t stream) {
    plain.Run(q, keys_of(layer), values_of(layer), out, nullptr, early, stream);
  };
  run_plain(0, false, nullptr);
  const std::vector<half> want = Download(out);
  const auto must_be_close = [&](const char* what) {
    const double distance = Distance(Download(out), want);
    if (distance < 0x1p-7) return distance;
    std::fprintf(stderr, "%s is %g of its length away from plain decode\n", what, distance);
    std::exit(1);
  };
  const Times plain_us = TimeLayers(layers, rounds, run_plain);
  run_plain(0, true, nullptr);
  must_be_close("plain decode that starts early");
  Times cascade_us;
  double distance = 0;
  if (shared > 0) {
    Shared first(shared);
    std::unique_ptr<Decode> second;
    if (own > 0) second = std::make_unique<Decode>(tails);
    const auto run_cascade = [&](int layer, bool early, cudaStream_t stream) {
      first.Run(q, keys_of(layer), values_of(layer), out, lse, early, stream);
      if (second == nullptr) return;
      second->Run(q, keys_of(layer), values_of(layer), other, other_lse, early, stream);
      Must(flashinfer::MergeStateInPlace(out, lse, other, other_lse, kSlots, kHeads, kHeadDim,
                                         nullptr, stream),
           "merge");
    };
    for (const bool early : {false, true}) {
      run_cascade(0, early, nullptr);
      distance = std::max(distance, must_be_close("cascade"));
    }
    cascade_us = TimeLayers(layers, rounds, run_cascade);
  }
  std::printf(
      "{\"n_p\": %d, \"n_s\": %d, \"plain_us\": %.2f, \"cascade_us\": %.2f, "
      "\"plain_serial_us\": %.2f, \"cascade_serial_us\": %.2f, "
      "\"distance\": %.6f, \"card\": \"%s\"}\n",
      keys, shared_keys, plain_us.early, cascade_us.early, plain_us.serial, cascade_us.serial,
      distance, device.name);
  std::fflush(stdout);
  Must(cudaFree(cache), "cudaFree");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 31;
  for (const int keys : {1024, 2048, 4096}) {
    for (const int quarters : {0, 2, 3, 4}) RunRow(keys, keys * quarters / 4, rounds);
  }
}
