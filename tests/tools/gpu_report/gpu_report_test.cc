// How a GPU benchmark ends, and what it leaves behind where it does not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tools/bench/gpu_bench_options.h"
#include "tools/bench/gpu_grid.h"

namespace refrain::bench {
namespace {

GpuReport WithMiss() {
  GpuReport report;
  report.misses.push_back("row 3 is over the bound");
  return report;
}

TEST(EndGpuReport, WhatWasReachedPasses) { EXPECT_EQ(EndGpuReport({}, GpuReport()), 0); }

TEST(EndGpuReport, AMissedGoalFailsTheRun) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(EndGpuReport({}, WithMiss()), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "not reached: row 3 is over the bound\n");
}

// tools/gpu_check quotes the last line.
TEST(EndGpuReport, AWrongResultIsToldBehindWhatWasMissed) {
  GpuReport report = WithMiss();
  report.errors.push_back("row 1 is 0.5 from exact");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(EndGpuReport({}, report), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "not reached: row 3 is over the bound\nrow 1 is 0.5 from exact\n");
}

// Goals are of the shapes they were set for.
TEST(EndGpuReport, TinyShapesMissNothing) {
  EXPECT_EQ(EndGpuReport({.tiny = true}, WithMiss()), 0);
}

TEST(EndGpuReport, AWrongResultFailsTinyShapesToo) {
  GpuReport report;
  report.errors.push_back("row 1 is 0.5 from exact");
  EXPECT_EQ(EndGpuReport({.tiny = true}, report), 1);
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// gpu_check puts it into its own report at any time, and a benchmark may be killed at any time.
TEST(WriteTextFile, NobodySeesHalfAText) {
  const refrain::testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/report.json";
  ASSERT_TRUE(WriteTextFile(path, "first"));
  std::ifstream open_before(path);
  ASSERT_TRUE(WriteTextFile(path, "second"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(open_before), {}), "first");
  EXPECT_EQ(Read(path), "second");
  std::filesystem::directory_iterator files(directory.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST(WriteTextFile, TheOldTextStaysWhereTheNewOneCannotBeWritten) {
  const refrain::testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/report.json";
  ASSERT_TRUE(WriteTextFile(path, "first"));
  std::filesystem::create_directory(path + ".new");
  EXPECT_FALSE(WriteTextFile(path, "second"));
  EXPECT_EQ(Read(path), "first");
  EXPECT_FALSE(WriteTextFile(directory.path() + "/none/report.json", "text"));
}

TEST(WriteTextFile, WhatIsNoFileStaysWhatItIs) {
  const refrain::testing::TemporaryDirectory directory;
  const std::string file = directory.path() + "/file", link = directory.path() + "/link";
  ASSERT_TRUE(WriteTextFile(file, "first"));
  std::filesystem::create_symlink(file, link);
  ASSERT_TRUE(WriteTextFile(link, "second"));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Read(file), "second");
}

constexpr PaperRow kTwoRows[] = {{64, 0, 1.0}, {64, 64, 1.0}};

GridSettings TinyGrid() {
  GridSettings settings;
  settings.rows = kTwoRows;
  settings.shape = {.slots = 2, .num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
  settings.pool_bytes_max = settings.copied_bytes = size_t{1} << 20;
  settings.rounds = settings.layers = 1;
  return settings;
}

// A kernel that hangs in the third row must not cost the first two.
TEST(GpuGrid, EveryRowIsSavedOnceItIsMeasured) {
  const refrain::testing::TemporaryDirectory directory;
  const GpuBenchOptions options = {.json = directory.path() + "/grid.json",
                                   .markdown = directory.path() + "/grid.md"};
  GridSettings settings = TinyGrid();
  GpuReport report;
  size_t saved = 0;
  settings.row_measured = [&] {
    SaveUnfinished(options, report);
    ASSERT_EQ(report.tables.at(0).rows.size(), ++saved);
    EXPECT_NE(Read(options.markdown).find("| 64 | " + std::string(saved == 1 ? "0" : "64") + " |"),
              std::string::npos);
    EXPECT_NE(Read(options.json).find("the run had not ended yet"), std::string::npos);
  };
  BenchDevice device(0);
  RunGpuGrid(device, settings, report);
  EXPECT_EQ(saved, 2u);
  EXPECT_TRUE(report.errors.empty());
}

// Replays nothing: what was there before the timing must not pass for its result.
class IdleDevice : public BenchDevice {
 public:
  IdleDevice() : BenchDevice(0) {}
  GraphTiming TimeGraph(const std::function<void()>&, int) override { return {1.0, 1.0, 1.0}; }
};

TEST(GpuGrid, ComparesBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(SameBits(std::vector{1.0f, nan}, std::vector{1.0f, nan}));
  EXPECT_FALSE(SameBits(std::vector{1.0f, 0.0f}, std::vector{1.0f, -0.0f}));
  EXPECT_FALSE(SameBits(std::vector{1.0f}, std::vector{1.0f, 0.0f}));
}

// Launches are checked one by one, and timed where they overlap.
TEST(GpuGrid, WhatWasTimedHasToBeWhatWasChecked) {
  IdleDevice device;
  GpuReport report;
  RunGpuGrid(device, TinyGrid(), report);
  const std::string wrong = ": the launches that were timed give another result than one alone";
  EXPECT_THAT(
      report.errors,
      ::testing::ElementsAre("n_p 64, n_s 0, two_phase" + wrong, "n_p 64, n_s 0, paged" + wrong,
                             "n_p 64, n_s 64, two_phase" + wrong, "n_p 64, n_s 64, paged" + wrong));
  EXPECT_EQ(EndGpuReport({.tiny = true}, report), 1);
}

}  // namespace
}  // namespace refrain::bench
