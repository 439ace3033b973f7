#include "engine/device_chunk_mover.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/kv_storage.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/forwarding_backend.h"

namespace refrain::engine {
namespace {

using kvcache::ChunkId;

constexpr int32_t kChunks = 40;

// The host's processors, or what says that it is a device, whose copies may fail.
class Backend final : public testing::ForwardingBackend, private kernels::Device {
 public:
  explicit Backend(bool on_host, int threads = 3)
      : ForwardingBackend(*kernels::cpu::CpuBackend::Create({.threads = threads})),
        info_(ForwardingBackend::info()) {
    info_.reads_results_in_place = on_host;
  }

  const kernels::BackendInfo& info() const override { return info_; }
  kernels::Device& device() override { return *this; }

  bool is_broken = false;

 private:
  absl::StatusOr<kernels::DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override {
    return on().device().Allocate(bytes, huge_pages);
  }
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    if (is_broken) return absl::InternalError("the device is broken");
    return on().device().Copy(to, from, bytes);
  }
  absl::Status CopyToHost(std::byte*, const std::byte*, size_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyFromHost(std::byte*, const std::byte*, size_t) override {
    return absl::OkStatus();
  }
  size_t AvailableBytes() const override { return 0; }
  void Free(std::byte*, size_t) override {}

  kernels::BackendInfo info_;
};

// Chunks of 768 KiB, each full of its number.
class Pool {
 public:
  explicit Pool(Backend& backend)
      : layout_(*kvcache::KvLayout::Create({.num_layers = 6,
                                            .num_kv_heads = 8,
                                            .head_dim = 64,
                                            .chunk_tokens = 64,
                                            .element = kvcache::KvElement::kF16})),
        storage_(*KvStorage::Create(backend.device(), layout_, kChunks)) {
    for (int32_t i = 0; i < kChunks; ++i) std::memset(chunk(i), i, layout_.chunk_bytes());
  }

  KvStorage* storage() { return storage_.get(); }

  // The number that the whole chunk is full of, or -1.
  int Holds(int32_t chunk_number) const {
    const std::byte* const bytes = chunk(chunk_number);
    const size_t rest = layout_.chunk_bytes() - 1;
    return std::memcmp(bytes, bytes + 1, rest) == 0 ? static_cast<int>(*bytes) : -1;
  }
  std::vector<int> HoldAll() const {
    std::vector<int> held;
    for (int32_t i = 0; i < kChunks; ++i) held.push_back(Holds(i));
    return held;
  }

 private:
  std::byte* chunk(int32_t number) const {
    return storage_->View(nullptr).base + static_cast<size_t>(number) * layout_.chunk_bytes();
  }

  const kvcache::KvLayout layout_;
  const std::unique_ptr<KvStorage> storage_;
};

TEST(DeviceChunkMoverTest, CopiesOnTheHostWaitForTheNextStep) {
  Backend backend(/*on_host=*/true);
  Pool pool(backend);
  DeviceChunkMover mover(pool.storage(), &backend);
  ASSERT_EQ(mover.CopyChunk(ChunkId{3}, ChunkId{20}), absl::OkStatus());
  EXPECT_EQ(pool.Holds(20), 20);
  ASSERT_EQ(mover.RunWaiting(), absl::OkStatus());
  EXPECT_EQ(pool.Holds(20), 3);
  // Once.
  std::memset(pool.storage()->View(nullptr).base + 20 * pool.storage()->layout().chunk_bytes(), 7,
              pool.storage()->layout().chunk_bytes());
  ASSERT_EQ(mover.RunWaiting(), absl::OkStatus());
  EXPECT_EQ(pool.Holds(20), 7);
}

TEST(DeviceChunkMoverTest, ADeviceCopiesAtOnce) {
  Backend backend(/*on_host=*/false);
  Pool pool(backend);
  DeviceChunkMover mover(pool.storage(), &backend);
  ASSERT_EQ(mover.CopyChunk(ChunkId{3}, ChunkId{20}), absl::OkStatus());
  EXPECT_EQ(pool.Holds(20), 3);
  EXPECT_EQ(mover.RunWaiting(), absl::OkStatus());
}

// Chunks are freed and taken again between steps: what was to be copied from one may have gone, and
// what is copied to one may be copied on.
TEST(DeviceChunkMoverTest, CopiesThatFollowFromEachOtherKeepTheirOrder) {
  std::mt19937 random(20261201);
  for (const int threads : {1, 2, 3, 7}) {
    Backend backend(/*on_host=*/true, threads);
    Pool pool(backend);
    DeviceChunkMover mover(pool.storage(), &backend);
    std::vector<int> expected = pool.HoldAll();
    for (int round = 0; round < 8; ++round) {
      const int copies = 1 + static_cast<int>(random() % 12);
      for (int i = 0; i < copies; ++i) {
        const auto from = static_cast<int32_t>(random() % kChunks);
        const auto to = static_cast<int32_t>((from + 1 + random() % (kChunks - 1)) % kChunks);
        ASSERT_EQ(mover.CopyChunk(ChunkId{from}, ChunkId{to}), absl::OkStatus());
        expected[static_cast<size_t>(to)] = expected[static_cast<size_t>(from)];
      }
      ASSERT_EQ(mover.RunWaiting(), absl::OkStatus());
      ASSERT_EQ(pool.HoldAll(), expected) << threads << " threads, round " << round;
    }
  }
}

TEST(DeviceChunkMoverTest, ABrokenDeviceIsToldByTheStep) {
  Backend backend(/*on_host=*/true);
  Pool pool(backend);
  DeviceChunkMover mover(pool.storage(), &backend);
  backend.is_broken = true;
  ASSERT_EQ(mover.CopyChunk(ChunkId{3}, ChunkId{20}), absl::OkStatus());
  EXPECT_EQ(mover.RunWaiting(), absl::InternalError("the device is broken"));
  // Nothing of it is left over.
  EXPECT_EQ(mover.RunWaiting(), absl::OkStatus());
}

}  // namespace
}  // namespace refrain::engine
