#include "kernels/cpu/control_groups.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace refrain::kernels::cpu {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

class ControlGroupsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = std::filesystem::path(folder_.path()) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  void WriteVersion2(const std::string& group, const std::string& limit, const std::string& usage,
                     const std::string& stat = "anon 1\n") {
    Write("groups" + group + "/memory.max", limit + "\n");
    Write("groups" + group + "/memory.current", usage + "\n");
    Write("groups" + group + "/memory.stat", stat);
  }

  // For a process of these groups, in the words of /proc/self/cgroup.
  ControlGroupFiles FilesFor(const std::string& membership) {
    Write("self", membership);
    return {.membership = folder_.path() + "/self", .root = folder_.path() + "/groups"};
  }
  size_t Left(const std::string& membership) { return LeftInControlGroups(FilesFor(membership)); }
  int Cores(const std::string& membership) { return CoresInControlGroups(FilesFor(membership)); }

  refrain::testing::TemporaryDirectory folder_;
};

TEST_F(ControlGroupsTest, WithoutALimitThereIsNone) {
  EXPECT_EQ(Left("0::/a\n"), kNoLimit);
  WriteVersion2("/a", "max", "1000");
  EXPECT_EQ(Left("0::/a\n"), kNoLimit);
  EXPECT_EQ(Left("nonsense\n"), kNoLimit);
  EXPECT_EQ(Left(""), kNoLimit);
}

TEST_F(ControlGroupsTest, TheTightestOfTheGroupsAboveCounts) {
  WriteVersion2("/a/b/c", "5000", "1000");
  EXPECT_EQ(Left("0::/a/b/c\n"), 4000u);
  WriteVersion2("/a", "9000", "8000");
  EXPECT_EQ(Left("0::/a/b/c\n"), 1000u);
  WriteVersion2("", "9000", "9500");
  EXPECT_EQ(Left("0::/a/b/c\n"), 0u);
  EXPECT_EQ(Left("0::/\n"), 0u);
}

// Beyond memory.high nothing is refused, but whoever allocates is slowed down.
TEST_F(ControlGroupsTest, MemoryBeyondWhichTheGroupIsSlowedDownIsNotLeft) {
  WriteVersion2("/a", "max", "1000");
  Write("groups/a/memory.high", "8000\n");
  EXPECT_EQ(Left("0::/a\n"), 7000u);
  Write("groups/a/memory.high", "max\n");
  EXPECT_EQ(Left("0::/a\n"), kNoLimit);
  WriteVersion2("/a", "9000", "1000");
  EXPECT_EQ(Left("0::/a\n"), 8000u);
  Write("groups/a/memory.high", "500\n");
  EXPECT_EQ(Left("0::/a\n"), 0u);
}

// A model that was downloaded, or read before, fills a container's limit with its pages.
TEST_F(ControlGroupsTest, PagesOfFilesCountAsLeft) {
  WriteVersion2("/a", "10000", "9900",
                "anon 800\nfile 9000\nshmem 100\ninactive_file 6000\nactive_file 2500\n");
  EXPECT_EQ(Left("0::/a\n"), 10000u - (9900 - 8500));
  // Numbers of different moments.
  WriteVersion2("/a", "10000", "100", "inactive_file 6000\n");
  EXPECT_EQ(Left("0::/a\n"), 10000u);
}

TEST_F(ControlGroupsTest, ReadsVersionOne) {
  Write("groups/memory/a/memory.limit_in_bytes", "5000\n");
  Write("groups/memory/a/memory.usage_in_bytes", "4000\n");
  Write("groups/memory/a/memory.stat",
        "cache 1\ninactive_file 7\ntotal_inactive_file 300\ntotal_active_file 200\n");
  EXPECT_EQ(Left("12:cpu,cpuacct:/x\n4:memory:/a\n1:name=systemd:/y\n"), 1500u);
}

TEST_F(ControlGroupsTest, WithoutAQuotaOfTimeCoresAreNotLimited) {
  constexpr int kAll = std::numeric_limits<int>::max();
  EXPECT_EQ(Cores("0::/a\n"), kAll);
  Write("groups/a/cpu.max", "max 100000\n");
  EXPECT_EQ(Cores("0::/a\n"), kAll);
  Write("groups/a/cpu.max", "100000 0\n");
  EXPECT_EQ(Cores("0::/a\n"), kAll);
  Write("groups/a/cpu.max", "18446744073709551615 1\n");
  EXPECT_EQ(Cores("0::/a\n"), kAll);
  EXPECT_EQ(Cores("nonsense\n"), kAll);
}

TEST_F(ControlGroupsTest, PartsOfACoreCountAsOne) {
  Write("groups/a/cpu.max", "200000 100000\n");
  EXPECT_EQ(Cores("0::/a\n"), 2);
  Write("groups/a/cpu.max", "200001 100000\n");
  EXPECT_EQ(Cores("0::/a\n"), 3);
  Write("groups/a/cpu.max", "1000 100000\n");
  EXPECT_EQ(Cores("0::/a\n"), 1);
  Write("groups/a/cpu.max", "0 100000\n");
  EXPECT_EQ(Cores("0::/a\n"), 1);
}

TEST_F(ControlGroupsTest, TheSmallestQuotaOfTheGroupsAboveCounts) {
  Write("groups/a/b/cpu.max", "800000 100000\n");
  Write("groups/a/cpu.max", "150000 50000\n");
  EXPECT_EQ(Cores("0::/a/b\n"), 3);
  Write("groups/cpu.max", "200000 100000\n");
  EXPECT_EQ(Cores("0::/a/b\n"), 2);
}

TEST_F(ControlGroupsTest, ReadsQuotasOfVersionOne) {
  Write("groups/cpu/a/cpu.cfs_quota_us", "-1\n");
  Write("groups/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cores("3:cpu,cpuacct:/a\n0::/\n"), std::numeric_limits<int>::max());
  Write("groups/cpu/a/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(Cores("3:cpu,cpuacct:/a\n0::/\n"), 3);
  EXPECT_EQ(Cores("3:cpuset:/a\n"), std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace refrain::kernels::cpu
