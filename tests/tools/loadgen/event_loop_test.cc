#include "tools/loadgen/event_loop.h"

#include <gtest/gtest.h>

#include <vector>

namespace refrain::loadgen {
namespace {

TEST(AsioLoop, CallsNothingBehindTheCallThatStopsIt) {
  AsioLoop loop;
  std::vector<int> called;
  const double now_s = loop.NowS();  // past: all three are due at once
  loop.CallAt(now_s - 3, [&] { called.push_back(1); });
  loop.CallAt(now_s - 2, [&] {
    called.push_back(2);
    loop.Stop();
  });
  loop.CallAt(now_s - 1, [&] { called.push_back(3); });
  loop.Run();
  EXPECT_EQ(called, (std::vector<int>{1, 2}));

  loop.CallAt(loop.NowS(), [&] {
    called.push_back(4);
    loop.Stop();
  });
  loop.Run();
  EXPECT_EQ(called, (std::vector<int>{1, 2, 4}));
}

}  // namespace
}  // namespace refrain::loadgen
