// How a GPU benchmark ends.

#include <gtest/gtest.h>

#include "tools/bench/gpu_bench_options.h"

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

// Goals are of the shapes they were set for.
TEST(EndGpuReport, TinyShapesMissNothing) {
  EXPECT_EQ(EndGpuReport({.tiny = true}, WithMiss()), 0);
}

TEST(EndGpuReport, AWrongResultFailsTinyShapesToo) {
  GpuReport report;
  report.errors.push_back("row 1 is 0.5 from exact");
  EXPECT_EQ(EndGpuReport({.tiny = true}, report), 1);
}

}  // namespace
}  // namespace refrain::bench
