#include "kernels/memory_info.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace refrain::kernels {
namespace {

class MemoryInfoTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = std::filesystem::path(folder_.path()) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  refrain::testing::TemporaryDirectory folder_;
  const MemoryFiles files_ = {.meminfo = folder_.path() + "/meminfo",
                              .nodes = folder_.path() + "/node"};
};

TEST_F(MemoryInfoTest, ReadsWhatTheKernelReckons) {
  Write("meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\nActive(file): 7 kB\n");
  Write("node/node0/meminfo", "Node 0 MemTotal: 5 kB\nNode 0 MemFree: 5 kB\n");
  EXPECT_EQ(MemTotalBytes(files_), 1000u << 10);
  EXPECT_EQ(MemAvailableBytes(files_), 600u << 10);
}

// As in a unit with ProcSubset=pid, on a machine of two nodes.
TEST_F(MemoryInfoTest, AddsUpNodesWhereMeminfoIsMissing) {
  for (const std::string node : {"0", "1"}) {
    Write("node/node" + node + "/meminfo",
          "Node " + node + " MemTotal:   1000 kB\nNode " + node + " MemFree:  100 kB\nNode " +
              node + " Active(anon):  5 kB\nNode " + node + " Active(file):  20 kB\nNode " + node +
              " Inactive(file):  3 kB\n");
  }
  Write("node/possible", "0-1\n");
  EXPECT_EQ(MemTotalBytes(files_), 2000u << 10);
  EXPECT_EQ(MemAvailableBytes(files_), 246u << 10);
}

// Less than there is, but for what was given back between the two looks.
TEST_F(MemoryInfoTest, AsksTheSystemWhereNoFileTells) {
  constexpr size_t kMiB = size_t{1} << 20;
  const size_t total = MemTotalBytes(files_);
  EXPECT_GT(total, MemTotalBytes() / 2);
  EXPECT_LT(total, MemTotalBytes() * 2);
  EXPECT_GT(MemAvailableBytes(files_), 0u);
  EXPECT_LT(MemAvailableBytes(files_), total);
  EXPECT_LT(MemAvailableBytes(files_), MemAvailableBytes() + 1024 * kMiB);
}

}  // namespace
}  // namespace refrain::kernels
