#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/weight_memory.h"

namespace refrain::kernels::cpu {
namespace {

bool AlignedTo(const std::byte* p, size_t alignment) {
  return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

TEST(CpuDeviceTest, MemoryIsAlignedAndZero) {
  CpuDevice device;
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5000}, (size_t{2} << 20) - 1}) {
    const auto buffer = device.Allocate(bytes, false);
    ASSERT_TRUE(buffer.ok());
    EXPECT_TRUE(AlignedTo(buffer->data(), 4096));
    EXPECT_EQ(buffer->data()[bytes - 1], std::byte{0});
  }
  for (const bool huge : {false, true}) {
    const auto buffer = device.Allocate((size_t{5} << 20) + 1, huge);
    ASSERT_TRUE(buffer.ok());
    EXPECT_TRUE(AlignedTo(buffer->data(), size_t{2} << 20));
    std::memset(buffer->data(), 1, buffer->bytes());
  }
}

// Few bytes and many, which go past the caches, from and to any address.
TEST(CpuDeviceTest, CopiesAllBytesAndNoOthers) {
  CpuDevice device;
  std::vector<std::byte> from(600'000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (const size_t bytes : {0u, 1u, 100u, 262'143u, 262'144u, 262'207u, 500'001u}) {
    for (const auto& [source, target] : {std::pair{0, 0}, {1, 0}, {0, 1}, {5, 63}, {64, 17}}) {
      std::vector<std::byte> to(600'000, std::byte{0xee});
      std::vector<std::byte> want = to;
      std::copy_n(from.begin() + source, bytes, want.begin() + target);
      ASSERT_TRUE(device.Copy(to.data() + target, from.data() + source, bytes).ok());
      EXPECT_TRUE(to == want) << bytes << " bytes from " << source << " to " << target;
    }
  }
}

// Flags that the kernel keeps of the mapping around `data` ("VmFlags: rd wr ..."); empty where
// there is none.
std::set<std::string> FlagsOfMapping(const std::byte* data) {
  std::ifstream smaps("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(data);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= address && address < end;
    } else if (inside && line.rfind("VmFlags:", 0) == 0) {
      std::istringstream words(line.substr(line.find(':') + 1));
      return {std::istream_iterator<std::string>(words), {}};
    }
  }
  return {};
}

// Without them a prompt's first touch of the KV cache takes 512 faults for each 2 MiB.
TEST(CpuDeviceTest, HugePagesAreAskedForWhereTheyAreWanted) {
  if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  CpuDevice device;
  const auto huge = device.Allocate(size_t{6} << 20, true);
  const auto small = device.Allocate(size_t{6} << 20, false);
  ASSERT_TRUE(huge.ok() && small.ok());
  for (const size_t at : {size_t{0}, (size_t{6} << 20) - 1}) {
    EXPECT_TRUE(FlagsOfMapping(huge->data() + at).contains("hg")) << "byte " << at;
    EXPECT_TRUE(FlagsOfMapping(small->data() + at).contains("nh")) << "byte " << at;
  }
}

// Of 8 MiB that hold something in the middle the first 5 are asked for.
TEST(CpuDeviceTest, PopulateMakesPagesResidentAndKeepsTheirBytes) {
  constexpr size_t kMiB = size_t{1} << 20;
  CpuDevice device;
  const auto buffer = device.Allocate(8 * kMiB, false);
  ASSERT_TRUE(buffer.ok());
  const auto resident = [&](size_t begin, size_t end) {
    std::vector<unsigned char> pages((end - begin) / 4096);
    EXPECT_EQ(mincore(buffer->data() + begin, end - begin, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  };
  buffer->data()[2 * kMiB + 77] = std::byte{7};
  EXPECT_EQ(resident(0, 8 * kMiB), 1);
  if (!device.Populate(buffer->data(), 5 * kMiB)) GTEST_SKIP() << "needs Linux 5.14";
  EXPECT_EQ(resident(0, 5 * kMiB), static_cast<long>(5 * kMiB / 4096));
  EXPECT_EQ(resident(5 * kMiB, 8 * kMiB), 0);
  EXPECT_EQ(buffer->data()[2 * kMiB + 77], std::byte{7});
}

TEST(CpuDeviceTest, NamesTheSizeThatItCannotAllocate) {
  CpuDevice device;
  const auto status = device.Allocate(size_t{1} << 60, false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("1152921504606846976"), std::string::npos);
}

TEST(CpuDeviceTest, KnowsWhatIsAvailable) {
  CpuDevice device;
  EXPECT_GT(device.AvailableBytes(), size_t{16} << 20);
  EXPECT_LT(device.AvailableBytes(), std::numeric_limits<size_t>::max());
  EXPECT_GT(device.TotalBytes(), device.AvailableBytes());
  EXPECT_LT(device.TotalBytes(), std::numeric_limits<size_t>::max());
}

// A device that counts what is allocated and not freed.
class CountingDevice : public CpuDevice {
 public:
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override {
    ++allocations;
    return CpuDevice::Allocate(bytes, huge_pages);
  }
  int allocations = 0;
};

TEST(WeightMemoryTest, SmallWeightsShareAnArena) {
  CountingDevice device;
  WeightMemory memory(device);
  auto a = memory.Allocate(100'000, true), b = memory.Allocate(5000, true);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(device.allocations, 1);
  EXPECT_GE(b->data(), a->data() + 100'000);
  EXPECT_TRUE(AlignedTo(b->data(), 4096));
  EXPECT_EQ(b->bytes(), 5000u);
}

TEST(WeightMemoryTest, LargeWeightsHaveTheirOwnAndLeaveTheArenaOpen) {
  CountingDevice device;
  WeightMemory memory(device);
  const auto a = memory.Allocate(100'000, true);
  const auto large = memory.Allocate(size_t{40} << 20, true);
  const auto b = memory.Allocate(100'000, true);
  EXPECT_EQ(device.allocations, 2);
  EXPECT_LT(b->data() - a->data(), 200'000);
}

TEST(WeightMemoryTest, AnArenaIsNotReusedWhileAnythingLivesInIt) {
  CountingDevice device;
  WeightMemory memory(device);
  auto a = memory.Allocate(100'000, true);
  {
    const auto b = memory.Allocate(100'000, true);
    std::memset(b->data(), 7, b->bytes());
  }
  const auto c = memory.Allocate(100'000, true);
  EXPECT_EQ(device.allocations, 1);
  EXPECT_EQ(c->data()[0], std::byte{0}) << "memory is zero-filled on first touch";
  *a = DeviceBuffer();
  EXPECT_EQ(c->data()[5], std::byte{0});
}

}  // namespace
}  // namespace refrain::kernels::cpu
