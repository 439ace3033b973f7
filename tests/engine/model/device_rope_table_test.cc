#include "engine/model/device_rope_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/rope_table.h"
#include "kernels/reference/host_device.h"

namespace refrain::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::FloatEq;

constexpr RopeConfig kRope{.theta = 10000.0, .dim = 8};
constexpr int32_t kHalf = kRope.dim / 2;
const std::vector<float> kFactors = {1, 2, 4, 8};

// Host memory that counts what is copied to it, and may be broken.
class CountingDevice final : public kernels::Device {
 public:
  absl::StatusOr<kernels::DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override {
    return host_.Allocate(bytes, huge_pages);
  }
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    return host_.Copy(to, from, bytes);
  }
  absl::Status CopyToHost(std::byte* host, const std::byte* from, size_t bytes) override {
    return host_.CopyToHost(host, from, bytes);
  }
  absl::Status CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) override {
    if (std::exchange(broken, false)) return absl::InternalError("not copied");
    copied_bytes += bytes;
    return host_.CopyFromHost(to, host, bytes);
  }
  size_t AvailableBytes() const override { return host_.AvailableBytes(); }

  size_t copied_bytes = 0;
  bool broken = false;  // the next copy fails

 private:
  void Free(std::byte*, size_t) override {}  // its buffers are the host's

  kernels::HostDevice host_;
};

class DeviceRopeTableTest : public ::testing::Test {
 protected:
  void Make(int32_t positions) {
    table_ = *DeviceRopeTable::Create(device_, kRope, kFactors, positions);
  }
  void Fill(std::vector<int32_t> positions) { table_->Fill(positions); }
  // Rows [begin, end) of cos or of sin.
  static std::span<const float> Rows(const float* table, int32_t begin, int32_t end) {
    return {table + begin * kHalf, static_cast<size_t>((end - begin) * kHalf)};
  }
  void ExpectFilled(int32_t begin, int32_t end) {
    const RopeAngles angles = MakeRopeAngles(kRope, kFactors, begin, end - begin);
    EXPECT_THAT(Rows(table_->view().cos, begin, end), ElementsAreArray(angles.cos));
    EXPECT_THAT(Rows(table_->view().sin, begin, end), ElementsAreArray(angles.sin));
  }
  // Memory of the host is zero until it is written; the cosine of no small angle is.
  void ExpectEmpty(int32_t begin, int32_t end) {
    EXPECT_THAT(Rows(table_->view().cos, begin, end), Each(FloatEq(0)));
    EXPECT_THAT(Rows(table_->view().sin, begin, end), Each(FloatEq(0)));
  }

  CountingDevice device_;
  std::unique_ptr<DeviceRopeTable> table_;
};

TEST_F(DeviceRopeTableTest, HoldsNothingUntilAPositionIsReached) {
  Make(2000);
  EXPECT_EQ(table_->view().max_positions, 2000);
  EXPECT_EQ(table_->view().rope_dim, kRope.dim);
  ExpectEmpty(0, 2000);
}

// The last position of a piece does not fill the next one, the first of that does.
TEST_F(DeviceRopeTableTest, PiecesAreFilledOnBothSidesOfTheirBorder) {
  Make(2000);
  Fill({511});
  ExpectFilled(0, 512);
  ExpectEmpty(512, 2000);
  Fill({512});
  ExpectFilled(0, 1024);
  ExpectEmpty(1024, 2000);
}

TEST_F(DeviceRopeTableTest, PiecesMayComeInAnyOrder) {
  Make(2000);
  Fill({1024, 3});
  ExpectFilled(1024, 1536);
  ExpectFilled(0, 512);
  ExpectEmpty(512, 1024);
  ExpectEmpty(1536, 2000);
}

// Of the last piece there are only as many rows as the table has: what is behind is sin's, or
// nobody's.
TEST_F(DeviceRopeTableTest, TheLastPieceEndsWithTheTable) {
  for (const int32_t positions : {1, 511, 512, 513, 1025}) {
    Make(positions);
    const int32_t begin = (positions - 1) / 512 * 512;
    ExpectEmpty(0, positions);
    const size_t copied_before = device_.copied_bytes;
    Fill({positions - 1});
    ExpectEmpty(0, begin);
    ExpectFilled(begin, positions);
    EXPECT_EQ(device_.copied_bytes - copied_before, (positions - begin) * kRope.dim * sizeof(float))
        << positions;
  }
}

TEST_F(DeviceRopeTableTest, APieceIsCopiedOnce) {
  Make(2000);
  Fill({0, 1, 511, 0});
  const size_t piece_bytes = 512 * kRope.dim * sizeof(float);
  EXPECT_EQ(device_.copied_bytes, piece_bytes);
  Fill({400, 700, 1023});
  EXPECT_EQ(device_.copied_bytes, 2 * piece_bytes);
}

TEST_F(DeviceRopeTableTest, APieceWhoseCopyFailedIsFilledByTheNextCall) {
  Make(2000);
  device_.broken = true;
  Fill({3});
  ExpectEmpty(0, 512);
  Fill({3});
  ExpectFilled(0, 512);
}

TEST_F(DeviceRopeTableTest, SaysThatThereIsNoMemory) {
  const auto made = DeviceRopeTable::Create(device_, {.dim = 1 << 30}, {}, INT32_MAX);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace refrain::engine
