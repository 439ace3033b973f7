#include "kernels/cuda/chunk_mover.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/emulated/emulated_runtime.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kLayers = 3, kChunks = 4;
constexpr size_t kLayerBytes = 256, kChunkBytes = kLayers * kLayerBytes;

// A pool on the device and an arena in pinned memory, every layer of every chunk with a byte of its
// own. The emulated device runs a stream only when somebody waits for it: what is not waited for
// has not happened.
class ChunkMoverTest : public testing::Test {
 protected:
  void Start(const emulated::EmulatedOptions& options = {}) {
    runtime_ = emulated::MakeEmulatedRuntime(options);
    pool_ = *runtime_->AllocateDevice(kChunks * kChunkBytes);
    arena_ = *runtime_->AllocatePinned(kChunks * kChunkBytes);
    seen_ = *runtime_->AllocatePinned(kChunks * kChunkBytes);
    compute_ = *runtime_->CreateStream(StreamPriority::kHigh);
    mover_ = *ChunkMover::Create(*runtime_, {kLayers, kLayerBytes});
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      for (int layer = 0; layer < kLayers; ++layer) {
        std::memset(At(pool_, chunk, layer), OnDevice(chunk, layer), kLayerBytes);
        std::memset(At(arena_, chunk, layer), OnHost(chunk, layer), kLayerBytes);
      }
    }
  }
  void TearDown() override {
    mover_.reset();
    compute_.reset();
  }

  static int OnDevice(int chunk, int layer) { return 1 + chunk * kLayers + layer; }
  static int OnHost(int chunk, int layer) { return 101 + chunk * kLayers + layer; }
  static std::byte* At(std::byte* base, int chunk, int layer) {
    return base + chunk * kChunkBytes + layer * kLayerBytes;
  }
  // The one value of all bytes, -1 where they differ.
  static int ValueAt(std::byte* base, int chunk, int layer) {
    const std::byte* const at = At(base, chunk, layer);
    for (size_t i = 1; i < kLayerBytes; ++i) {
      if (at[i] != at[0]) return -1;
    }
    return static_cast<int>(at[0]);
  }

  // Chunk i of the arena belongs to chunk i of the pool, in this order.
  std::vector<ChunkPlaces> Places(const std::vector<int>& chunks) const {
    std::vector<ChunkPlaces> places;
    for (const int chunk : chunks) places.push_back({At(pool_, chunk, 0), At(arena_, chunk, 0)});
    return places;
  }

  // A kernel of the step: reads a layer of a chunk into `seen_`, or writes it.
  void Read(int chunk, int layer) {
    ASSERT_TRUE(
        runtime_
            ->CopyAsync(At(seen_, chunk, layer), At(pool_, chunk, layer), kLayerBytes, *compute_)
            .ok());
  }
  void Write(int chunk, int layer, uint8_t value) {
    ASSERT_TRUE(runtime_->FillAsync(At(pool_, chunk, layer), value, kLayerBytes, *compute_).ok());
  }
  void RunStep() { ASSERT_TRUE(runtime_->Synchronize(*compute_).ok()); }

  std::unique_ptr<Runtime> runtime_;
  std::byte *pool_ = nullptr, *arena_ = nullptr, *seen_ = nullptr;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<ChunkMover> mover_;
};

TEST_F(ChunkMoverTest, LoadsEveryLayerOfTheChunksAndNoOther) {
  Start();
  auto load = mover_->Load(Places({2, 0}), *compute_);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ((*load)->Poll(), ChunkMove::State::kMoving);
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
  EXPECT_EQ((*load)->num_failed(), 0u);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(ValueAt(pool_, 0, layer), OnHost(0, layer));
    EXPECT_EQ(ValueAt(pool_, 1, layer), OnDevice(1, layer));
    EXPECT_EQ(ValueAt(pool_, 2, layer), OnHost(2, layer));
  }
}

TEST_F(ChunkMoverTest, AStepReadsALayerBehindItsArrivalAndWaitsForNoLaterOne) {
  Start();
  auto load = mover_->Load(Places({0, 1}), *compute_);
  ASSERT_TRUE(load.ok());
  for (int layer = 0; layer < 2; ++layer) {
    ASSERT_TRUE((*load)->UseLayer(layer, *compute_).ok());
    Read(0, layer);
    Read(1, layer);
    RunStep();
    EXPECT_EQ(ValueAt(seen_, 0, layer), OnHost(0, layer));
    EXPECT_EQ(ValueAt(seen_, 1, layer), OnHost(1, layer));
    // All chunks' layers up to this one have moved, the next has not begun.
    EXPECT_EQ(ValueAt(pool_, 0, layer + 1), OnDevice(0, layer + 1));
    EXPECT_EQ((*load)->Poll(), ChunkMove::State::kMoving);
  }
}

TEST_F(ChunkMoverTest, WithoutItsEventALayerWouldBeReadTooEarly) {
  Start();
  auto load = mover_->Load(Places({0}), *compute_);
  ASSERT_TRUE(load.ok());
  Read(0, 0);
  RunStep();
  EXPECT_EQ(ValueAt(seen_, 0, 0), OnDevice(0, 0));
}

TEST_F(ChunkMoverTest, ALoadDoesNotOvertakeTheStepThatStillReadsThePlace) {
  Start();
  for (int layer = 0; layer < kLayers; ++layer) Read(3, layer);
  auto load = mover_->Load(Places({3}), *compute_);
  ASSERT_TRUE(load.ok());
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(ValueAt(seen_, 3, layer), OnDevice(3, layer));
    EXPECT_EQ(ValueAt(pool_, 3, layer), OnHost(3, layer));
  }
}

TEST_F(ChunkMoverTest, SavesEachLayerAsItWasWhenItWasWritten) {
  Start();
  auto save = mover_->SaveLayerByLayer(Places({1}));
  ASSERT_TRUE(save.ok());
  for (int layer = 0; layer < kLayers; ++layer) {
    Write(1, layer, static_cast<uint8_t>(50 + layer));
    ASSERT_TRUE((*save)->LayerWritten(layer, *compute_).ok());
  }
  EXPECT_EQ((*save)->Wait(), ChunkMove::State::kDone);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(ValueAt(arena_, 1, layer), 50 + layer);
    EXPECT_EQ(ValueAt(arena_, 0, layer), OnHost(0, layer));
  }
}

TEST_F(ChunkMoverTest, AStepNeverWaitsForASave) {
  Start();
  auto layers = mover_->SaveLayerByLayer(Places({1}));
  ASSERT_TRUE(layers.ok());
  ASSERT_TRUE((*layers)->LayerWritten(0, *compute_).ok());
  auto whole = mover_->Save(Places({2}), *compute_);
  ASSERT_TRUE(whole.ok());
  Read(1, 0);
  RunStep();
  EXPECT_EQ(ValueAt(arena_, 1, 0), OnHost(1, 0));
  EXPECT_EQ(ValueAt(arena_, 2, 0), OnHost(2, 0));
  EXPECT_EQ((*whole)->Poll(), ChunkMove::State::kMoving);
}

TEST_F(ChunkMoverTest, ASaveHoldsWhatTheStepBeforeItWrote) {
  Start();
  for (int layer = 0; layer < kLayers; ++layer) Write(2, layer, 77);
  auto save = mover_->Save(Places({2}), *compute_);
  ASSERT_TRUE(save.ok());
  EXPECT_EQ((*save)->Wait(), ChunkMove::State::kDone);
  for (int layer = 0; layer < kLayers; ++layer) EXPECT_EQ(ValueAt(arena_, 2, layer), 77);
}

// Without single copies: what lies equally far apart goes as one.
TEST_F(ChunkMoverTest, ChunksThatLieEquallyFarApartGoByOneCopy) {
  Start({.failing_call = "CopyAsync", .failing_call_index = 0});
  auto load = mover_->Load(Places({0, 2}), *compute_);  // two chunks apart
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
  EXPECT_EQ((*load)->num_failed(), 0u);
  auto save = mover_->Save(Places({1, 2, 3}), *compute_);
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_EQ((*save)->Wait(), ChunkMove::State::kDone);
  EXPECT_EQ((*save)->num_failed(), 0u);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(ValueAt(pool_, 0, layer), OnHost(0, layer));
    EXPECT_EQ(ValueAt(pool_, 2, layer), OnHost(2, layer));
    EXPECT_EQ(ValueAt(pool_, 1, layer), OnDevice(1, layer));
    EXPECT_EQ(ValueAt(arena_, 1, layer), OnDevice(1, layer));
    EXPECT_EQ(ValueAt(arena_, 2, layer), OnHost(2, layer));
    EXPECT_EQ(ValueAt(arena_, 3, layer), OnDevice(3, layer));
    EXPECT_EQ(ValueAt(arena_, 0, layer), OnHost(0, layer));
  }
}

TEST_F(ChunkMoverTest, AnyOrderOfChunksArrives) {
  const std::vector<std::vector<int>> orders = {{3, 2, 1, 0}, {0, 1, 3, 2}, {2, 3, 0, 1},
                                                {0, 3, 1, 2}, {0, 1, 2, 3}, {1, 3, 2}};
  for (const std::vector<int>& order : orders) {
    Start();
    auto load = mover_->Load(Places(order), *compute_);
    ASSERT_TRUE(load.ok()) << load.status();
    EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
    EXPECT_EQ((*load)->num_failed(), 0u);
    for (const int chunk : order) {
      for (int layer = 0; layer < kLayers; ++layer) {
        EXPECT_EQ(ValueAt(pool_, chunk, layer), OnHost(chunk, layer));
      }
    }
    load->reset();
    TearDown();
  }
}

// The device's neighbours are no neighbours on the host, and the other way round.
TEST_F(ChunkMoverTest, DistancesCountOnBothSides) {
  Start();
  const std::vector<ChunkPlaces> places = {{At(pool_, 0, 0), At(arena_, 0, 0)},
                                           {At(pool_, 1, 0), At(arena_, 1, 0)},
                                           {At(pool_, 2, 0), At(arena_, 3, 0)},
                                           {At(pool_, 3, 0), At(arena_, 2, 0)}};
  auto load = mover_->Load(places, *compute_);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(ValueAt(pool_, 1, layer), OnHost(1, layer));
    EXPECT_EQ(ValueAt(pool_, 2, layer), OnHost(3, layer));
    EXPECT_EQ(ValueAt(pool_, 3, layer), OnHost(2, layer));
  }
}

// Two blocks of pinned memory are not one, though the distances fit: each chunk goes alone.
TEST_F(ChunkMoverTest, AStretchOverSeveralBlocksGoesPieceByPiece) {
  Start();
  std::byte* const other = *runtime_->AllocatePinned(kChunkBytes);
  std::memset(other, 77, kChunkBytes);
  std::vector<ChunkPlaces> places = {{At(pool_, 0, 0), At(arena_, 0, 0)}, {At(pool_, 1, 0), other}};
  if (other < arena_) std::swap(places[0].host, places[1].host);
  auto load = mover_->Load(places, *compute_);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
  EXPECT_EQ((*load)->num_failed(), 0u);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(ValueAt(pool_, other < arena_ ? 0 : 1, layer), 77);
  }
}

// The second copy of layer 1 is refused: that is chunk 1 of three, which lie in an order that no
// one copy takes.
TEST_F(ChunkMoverTest, ARefusedCopyMakesItsChunkAMissAndNoOther) {
  emulated::EmulatedOptions options;
  options.failing_call = "CopyAsync";
  options.failing_call_index = 3 + 1;
  Start(options);
  auto load = mover_->Load(Places({2, 1, 0}), *compute_);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_TRUE((*load)->failed(1));
  EXPECT_EQ((*load)->num_failed(), 1u);
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kDone);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(ValueAt(pool_, 0, layer), OnHost(0, layer));
    EXPECT_EQ(ValueAt(pool_, 2, layer), OnHost(2, layer));
  }
  // Nothing more was moved for the chunk that is lost.
  EXPECT_EQ(ValueAt(pool_, 1, 2), OnDevice(1, 2));
}

__global__ void Break() { __trap(); }

TEST_F(ChunkMoverTest, OnABrokenDeviceEveryChunkIsAMiss) {
  Start();
  Launch(*compute_, {dim3(1), dim3(32), 0, "Break"}, Break);
  auto load = mover_->Load(Places({0, 1}), *compute_);
  ASSERT_TRUE(load.ok());
  EXPECT_EQ((*load)->Wait(), ChunkMove::State::kFailed);
  EXPECT_EQ((*load)->num_failed(), 2u);
  EXPECT_NE((*load)->status().message().find("Break"), std::string::npos) << (*load)->status();
}

// It has no event, or does not follow what wrote it.
TEST_F(ChunkMoverTest, ALayerThatNobodyCouldAwaitEndsTheSave) {
  for (const auto& [call, index] :
       {std::pair("CreateEvent", 2), std::pair("Record", 2), std::pair("WaitFor", 1)}) {
    SCOPED_TRACE(call);
    emulated::EmulatedOptions options;
    options.failing_call = call;
    options.failing_call_index = index;  // layer 0 has been written
    Start(options);
    auto save = mover_->SaveLayerByLayer(Places({0}));
    ASSERT_TRUE(save.ok());
    ASSERT_TRUE((*save)->LayerWritten(0, *compute_).ok());
    EXPECT_FALSE((*save)->LayerWritten(1, *compute_).ok());
    EXPECT_FALSE((*save)->LayerWritten(2, *compute_).ok());
    EXPECT_EQ((*save)->Poll(), ChunkMove::State::kFailed);
    EXPECT_FALSE((*save)->status().ok());
    EXPECT_TRUE((*save)->failed(0));
  }
}

TEST_F(ChunkMoverTest, TheBytesAreTheCallersOnceTheMoveIsGone) {
  Start();
  {
    auto load = mover_->Load(Places({0}), *compute_);
    ASSERT_TRUE(load.ok());
  }
  EXPECT_EQ(ValueAt(pool_, 0, kLayers - 1), OnHost(0, kLayers - 1));
}

TEST_F(ChunkMoverTest, EventsAreUsedAgain) {
  emulated::EmulatedOptions options;
  options.failing_call = "CreateEvent";
  options.failing_call_index = 1 + kLayers;  // one move's worth, and the mover's own
  Start(options);
  for (int i = 0; i < 5; ++i) {
    auto load = mover_->Load(Places({0}), *compute_);
    ASSERT_TRUE(load.ok()) << load.status();
  }
}

TEST(ChunkMover, SaysWhichCallFailedAtItsStart) {
  emulated::EmulatedOptions options;
  options.failing_call = "CreateStream";
  options.failing_call_index = 1;
  auto runtime = emulated::MakeEmulatedRuntime(options);
  const auto mover = ChunkMover::Create(*runtime, {kLayers, kLayerBytes});
  ASSERT_FALSE(mover.ok());
  EXPECT_NE(mover.status().message().find("CreateStream"), std::string::npos);
}

}  // namespace
}  // namespace refrain::kernels::cuda
