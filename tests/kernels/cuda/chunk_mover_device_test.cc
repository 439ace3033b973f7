// ChunkMover on a device whose copies run by themselves, a GPU where the build is for one: what was
// waited for is there, and nothing overtakes. What only a device does that runs as late as it may,
// and that fails when it is told to: chunk_mover_test.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/chunk_mover.h"

namespace refrain::kernels::cuda {
namespace {

// So much that a GPU is not through with it when the host has put the next thing on a stream.
constexpr int kLayers = 8, kChunks = 16;
constexpr size_t kLayerBytes = size_t{256} << 10, kChunkBytes = kLayers * kLayerBytes;
constexpr size_t kBytes = kChunks * kChunkBytes;
constexpr uint8_t kBefore = 0xee;

class ChunkMoverDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto runtime = OpenDevice(0);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    pool_ = *runtime_->AllocateDevice(kBytes);
    arena_ = *runtime_->AllocatePinned(kBytes);
    seen_ = *runtime_->AllocatePinned(kBytes);
    compute_ = *runtime_->CreateStream(StreamPriority::kHigh);
    mover_ = *ChunkMover::Create(*runtime_, {kLayers, kLayerBytes});
    auto* const words = reinterpret_cast<uint64_t*>(arena_);
    for (size_t i = 0; i < kBytes / sizeof(uint64_t); ++i) words[i] = i * 0x9e3779b97f4a7c15u;
    Fill(pool_, kBytes, kBefore);
    ASSERT_TRUE(runtime_->Synchronize(*compute_).ok());
  }
  void TearDown() override {
    if (runtime_ == nullptr) return;
    mover_.reset();
    compute_.reset();
    runtime_->FreeDevice(pool_);
    runtime_->FreePinned(arena_);
    runtime_->FreePinned(seen_);
  }

  static size_t At(int chunk, int layer) { return chunk * kChunkBytes + layer * kLayerBytes; }
  // Places of the chunks: one behind the other, or in an order of which one copy takes few.
  std::vector<ChunkPlaces> Places(bool scattered) const {
    std::vector<ChunkPlaces> places;
    for (int i = 0; i < kChunks; ++i) {
      const int chunk = scattered ? i * 7 % kChunks : i;
      const int other = scattered ? i * 5 % kChunks : i;
      places.push_back({pool_ + At(chunk, 0), arena_ + At(other, 0)});
    }
    return places;
  }

  // Puts what a step does on its stream.
  void Fill(std::byte* to, size_t bytes, uint8_t value) {
    ASSERT_TRUE(runtime_->FillAsync(to, value, bytes, *compute_).ok());
  }
  void Read(size_t at, size_t bytes) {
    ASSERT_TRUE(runtime_->CopyAsync(seen_ + at, pool_ + at, bytes, *compute_).ok());
  }

  static bool IsAll(const std::byte* data, size_t bytes, uint8_t value) {
    return std::to_integer<uint8_t>(data[0]) == value &&
           std::memcmp(data, data + 1, bytes - 1) == 0;
  }

  std::unique_ptr<Runtime> runtime_;
  std::byte *pool_ = nullptr, *arena_ = nullptr, *seen_ = nullptr;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<ChunkMover> mover_;
};

TEST_F(ChunkMoverDeviceTest, WhatIsPutBehindALayerFindsItThere) {
  for (const bool scattered : {false, true}) {
    Fill(pool_, kBytes, kBefore);
    const std::vector<ChunkPlaces> places = Places(scattered);
    auto load = mover_->Load(places, *compute_);
    ASSERT_TRUE(load.ok()) << load.status();
    for (int layer = 0; layer < kLayers; ++layer) {
      ASSERT_TRUE((*load)->UseLayer(layer, *compute_).ok());
      for (int chunk = 0; chunk < kChunks; ++chunk) Read(At(chunk, layer), kLayerBytes);
    }
    ASSERT_TRUE(runtime_->Synchronize(*compute_).ok());
    for (const ChunkPlaces& place : places) {
      EXPECT_EQ(std::memcmp(seen_ + (place.device - pool_), place.host, kChunkBytes), 0)
          << "chunk " << (place.device - pool_) / kChunkBytes << (scattered ? ", scattered" : "");
    }
    EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
    EXPECT_EQ((*load)->num_failed(), 0u);
  }
}

TEST_F(ChunkMoverDeviceTest, ALoadDoesNotOvertakeWhatStillReadsThePlace) {
  Read(0, kBytes);
  auto load = mover_->Load(Places(false), *compute_);
  ASSERT_TRUE(load.ok()) << load.status();
  ASSERT_TRUE(runtime_->Synchronize(*compute_).ok());
  EXPECT_TRUE(IsAll(seen_, kBytes, kBefore));
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
}

TEST_F(ChunkMoverDeviceTest, ASaveHasEachLayerAsItWasWritten) {
  for (const bool scattered : {false, true}) {
    Read(0, kBytes);  // so that what follows is late
    const int first = scattered ? 100 : 1;
    auto save = mover_->SaveLayerByLayer(Places(scattered));
    ASSERT_TRUE(save.ok()) << save.status();
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        Fill(pool_ + At(chunk, layer), kLayerBytes, static_cast<uint8_t>(first + layer));
      }
      ASSERT_TRUE((*save)->LayerWritten(layer, *compute_).ok());
    }
    EXPECT_EQ((*save)->Wait(), ChunkMove::State::kDone);
    EXPECT_EQ((*save)->num_failed(), 0u);
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      for (int layer = 0; layer < kLayers; ++layer) {
        EXPECT_TRUE(
            IsAll(arena_ + At(chunk, layer), kLayerBytes, static_cast<uint8_t>(first + layer)))
            << chunk << ", " << layer;
      }
    }
  }
}

TEST_F(ChunkMoverDeviceTest, ASaveHasWhatTheStepInFrontWrote) {
  Read(0, kBytes);
  Fill(pool_, kBytes, 77);
  auto save = mover_->Save(Places(true), *compute_);
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_EQ((*save)->Wait(), ChunkMove::State::kDone);
  EXPECT_TRUE(IsAll(arena_, kBytes, 77));
}

// To an address that is nobody's.
TEST_F(ChunkMoverDeviceTest, ARefusedCopyMakesItsChunkAMissAndNoOther) {
  std::vector<ChunkPlaces> places = Places(false);
  std::byte* const place = std::exchange(places[5].device, nullptr);
  auto load = mover_->Load(places, *compute_);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
  EXPECT_TRUE((*load)->failed(5));
  EXPECT_EQ((*load)->num_failed(), 1u);
  places[5].device = place;
  load->reset();
  Read(0, kBytes);
  ASSERT_TRUE(runtime_->Synchronize(*compute_).ok()) << "the device goes on";
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const size_t at = At(chunk, 0);
    EXPECT_EQ(std::memcmp(seen_ + at, arena_ + at, kChunkBytes) == 0, chunk != 5) << chunk;
  }
  EXPECT_TRUE(IsAll(seen_ + At(5, 0), kChunkBytes, kBefore));
  auto again = mover_->Load(places, *compute_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->Wait(), ChunkMove::State::kDone);
  EXPECT_EQ((*again)->num_failed(), 0u);
}

}  // namespace
}  // namespace refrain::kernels::cuda
