#include "kernels/cpu/processors.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace refrain::kernels::cpu {
namespace {

class ProcessorsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = std::filesystem::path(folder_.path()) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void WriteSiblings(int processor, const std::string& list) {
    Write("cpu/cpu" + std::to_string(processor) + "/topology/thread_siblings_list", list + "\n");
  }
  void WriteNode(const std::string& node, const std::string& list) {
    Write("node/" + node + "/cpulist", list + "\n");
  }
  int Cores(const std::vector<int>& processors) { return CoresOf(processors, files_); }
  int Nodes(const std::vector<int>& processors) { return MemoryNodesOf(processors, files_); }

  refrain::testing::TemporaryDirectory folder_;
  ProcessorFiles files_ = {.processors = folder_.path() + "/cpu",
                           .nodes = folder_.path() + "/node"};
};

TEST_F(ProcessorsTest, HyperthreadsOfACoreCountOnce) {
  // As Linux numbers two cores of two threads: the second threads come behind.
  for (const int first : {0, 1}) {
    const std::string siblings = std::to_string(first) + "," + std::to_string(first + 2);
    WriteSiblings(first, siblings);
    WriteSiblings(first + 2, siblings);
  }
  EXPECT_EQ(Cores({0, 1, 2, 3}), 2);
  EXPECT_EQ(Cores({0, 2}), 1);
  EXPECT_EQ(Cores({1, 2}), 2);
  EXPECT_EQ(Cores({3}), 1);
}

TEST_F(ProcessorsTest, AProcessorOfWhichNothingIsToldIsACore) {
  EXPECT_EQ(Cores({0, 1, 5}), 3);
  WriteSiblings(0, "0-1");
  WriteSiblings(1, "0-1");
  EXPECT_EQ(Cores({0, 1, 5}), 2);
  WriteSiblings(5, "");
  EXPECT_EQ(Cores({0, 1, 5}), 2);
}

TEST_F(ProcessorsTest, CountsTheNodesThatAProcessorIsOf) {
  EXPECT_EQ(Nodes({0, 1}), 1);
  WriteNode("node0", "0-3,8-11");
  WriteNode("node1", "4-7,12-15");
  WriteNode("node2", "");  // of memory alone
  WriteNode("online", "0-15");
  WriteNode("nodes", "0-15");
  EXPECT_EQ(Nodes({0, 3, 8, 11}), 1);
  EXPECT_EQ(Nodes({5}), 1);
  EXPECT_EQ(Nodes({3, 4}), 2);
  EXPECT_EQ(Nodes({11, 15}), 2);
  EXPECT_EQ(Nodes({16}), 1);
}

TEST_F(ProcessorsTest, NonsenseIsNoList) {
  WriteNode("node0", "x,-,3-,4-y,,9");
  WriteNode("node1", "9");
  EXPECT_EQ(Nodes({3, 4}), 1);
  EXPECT_EQ(Nodes({9}), 2);
}

TEST(AllowedProcessorsTest, AreThoseOfTheMask) {
  const std::vector<int> before = AllowedProcessors();
  ASSERT_FALSE(before.empty());
  EXPECT_TRUE(std::is_sorted(before.begin(), before.end()));
  EXPECT_LE(before.size(), std::thread::hardware_concurrency());
  std::vector<int> inside;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(before.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    inside = AllowedProcessors();
  }).join();
  EXPECT_EQ(inside, std::vector<int>{before.back()});
}

TEST(AllowedProcessorsTest, OfThisMachineHaveCoresAndANode) {
  const std::vector<int> all = AllowedProcessors();
  EXPECT_GE(CoresOf(all), 1);
  EXPECT_LE(CoresOf(all), static_cast<int>(all.size()));
  EXPECT_GE(MemoryNodesOf(all), 1);
}

}  // namespace
}  // namespace refrain::kernels::cpu
