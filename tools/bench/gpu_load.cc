#include "tools/bench/gpu_load.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/chunk_mover.h"
#include "tools/bench/gpu_bench_device.h"

namespace refrain::bench {

namespace gpu = kernels::cuda;

namespace {

// Every 8 bytes another value.
void FillWithWords(std::byte* data, size_t bytes) {
  auto* const words = reinterpret_cast<uint64_t*>(data);
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) words[i] = i * 0x9e3779b97f4a7c15u;
}

void CheckLoaded(BenchDevice& device, const std::vector<gpu::ChunkPlaces>& places, size_t bytes) {
  for (const gpu::ChunkPlaces& place : places) {
    const std::vector<std::byte> got = device.Download(place.device, bytes);
    if (std::memcmp(got.data(), place.host, bytes) != 0) {
      std::fprintf(stderr, "a loaded chunk is not what was in host memory\n");
      std::exit(1);
    }
  }
}

}  // namespace

void RunGpuLoad(RandomModel& model, LayerGate& gate, int tokens, int rounds,
                const std::string& shape, GpuReport& report) {
  const kvcache::KvLayout& layout = model.storage().layout();
  BenchDevice device(0);
  const size_t chunks = static_cast<size_t>(tokens) / RandomModel::kChunkTokens;
  std::byte* const on_device = device.Allocate(chunks * layout.chunk_bytes());
  std::byte* const on_host = device.AllocatePinned(chunks * layout.chunk_bytes());
  FillWithWords(on_host, chunks * layout.chunk_bytes());
  std::vector<gpu::ChunkPlaces> places;
  for (size_t i = 0; i < chunks; ++i) {
    places.push_back({on_device + i * layout.chunk_bytes(), on_host + i * layout.chunk_bytes()});
  }
  const int layers = layout.dimensions().num_layers;
  const auto mover =
      MustHave(gpu::ChunkMover::Create(device.runtime(), {layers, layout.layer_bytes()}));
  const GraphTiming alone = device.TimeWork(
      [&] {
        const auto move = MustHave(mover->Load(places, device.stream()));
        if (move->Wait() != gpu::ChunkMove::State::kDone) MustBeOk(move->status());
      },
      rounds);
  CheckLoaded(device, places, layout.chunk_bytes());
  const StepTime fresh = model.TimePrefill(tokens, kLoadNewTokens, rounds);
  const StepTime recomputed = model.TimePrefill(0, tokens + kLoadNewTokens, std::min(rounds, 5));
  std::unique_ptr<gpu::ChunkMove> move;
  int layers_waited = 0, prefills = 0;
  gate.AskBeforeAttention([&](int layer) {
    if (layer == 0) {
      ++prefills;
      move = MustHave(mover->Load(places, device.stream()));
    }
    MustBeOk(move->UseLayer(layer, device.stream()));
    device.Synchronize();
    ++layers_waited;
  });
  const StepTime together =
      model.TimePrefill(tokens, kLoadNewTokens, rounds, [&] { move.reset(); });
  gate.AskBeforeAttention({});
  if (prefills < rounds || layers_waited != prefills * layers) {
    std::fprintf(stderr, "%d layers waited for their keys, should be %d in each of %d prefills\n",
                 layers_waited, layers, rounds);
    std::exit(1);
  }
  if (move->Wait() != gpu::ChunkMove::State::kDone) MustBeOk(move->status());
  CheckLoaded(device, places, layout.chunk_bytes());
  GpuTable table;
  table.name = "load";
  table.about =
      std::to_string(tokens) + " tokens of " + shape + " (" +
      GpuCell(model.KvBytes(tokens) * 1e-6, 0).Text() +
      " MB) from pinned memory. Under the prefill each layer attends once its K and V are "
      "there, and the load begins with the prefill.";
  table.columns = {"what", "ms", "of computing it again"};
  const auto row = [&](const char* what, double seconds) {
    table.rows.push_back({what, Milliseconds(seconds), {seconds / recomputed.median_s, 3}});
  };
  row("load alone", alone.median_s);
  row("prefill of 64 tokens", fresh.median_s);
  row("load under the prefill", together.median_s);
  row("prefill of all", recomputed.median_s);
  report.tables.push_back(std::move(table));
  report.measured.emplace_back("load, GB/s", model.KvBytes(tokens) / alone.median_s * 1e-9);
  if (together.median_s > 0.10 * recomputed.median_s) {
    report.misses.push_back("loading takes over 0.10 of computing it again");
  }
}

}  // namespace refrain::bench
