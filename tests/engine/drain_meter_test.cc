#include "engine/drain_meter.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/fake_clock.h"

namespace refrain::engine {
namespace {

using namespace std::chrono_literals;

// `count` leave, one in each `period`, at its end.
void Leave(int count, std::chrono::milliseconds period, testing::FakeClock* clock,
           DrainMeter* meter) {
  for (int i = 0; i < count; ++i) {
    clock->Advance(period);
    meter->Add(clock->Now(), 1);
  }
}

TEST(DrainMeterTest, MeasuresTheRateOfTheLastSeconds) {
  testing::FakeClock clock;
  DrainMeter meter;
  for (int i = 0; i < 60; ++i) {
    meter.Add(clock.Now(), 5);
    clock.Advance(500ms);
  }
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 100), 10, 1);  // ten a second
  for (int i = 0; i < 60; ++i) {
    meter.Add(clock.Now(), 20);
    clock.Advance(500ms);
  }
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 100), 2.5, 0.3);  // the slow time is forgotten
  clock.Advance(DrainMeter::kWindow * 2);
  EXPECT_GE(meter.SecondsFor(clock.Now(), 100), 100);  // nothing has left lately
}

// Before a burst there was nothing to leave: that is no slowness.
TEST(DrainMeterTest, AnIdleTimeBeforeDoesNotCount) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Add(clock.Now(), 1);
  clock.Advance(DrainMeter::kWindow * 2);
  meter.Begin(clock.Now());
  Leave(60, 50ms, &clock, &meter);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 1000), 50, 5);  // twenty a second
}

// One in 20 s while others wait: that one has just left does not make it one a second.
TEST(DrainMeterTest, ASlowRateStaysSlow) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(3, 20s, &clock, &meter);
  EXPECT_GE(meter.SecondsFor(clock.Now(), 1), 15);
}

// A first burst: nothing has left yet, and nothing has taken long.
TEST(DrainMeterTest, WhereNothingHasLeftItTakesAsLongAsItHasTaken) {
  testing::FakeClock clock;
  clock.Advance(DrainMeter::kWindow * 2);
  DrainMeter meter;
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 1), 0, 0.01);
  meter.Begin(clock.Now());
  clock.Advance(10ms);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 20), 0.2, 0.01);
  clock.Advance(490ms);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 2), 1, 0.01);
  clock.Advance(5s);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 2), 11, 0.1);
  clock.Advance(DrainMeter::kWindow * 2);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 2), 31, 1);
}

// What has only just come is told from what left before it, ten a second, however long ago.
TEST(DrainMeterTest, BeforeAnythingHasLeftTheFormerRateCounts) {
  for (const auto idle : {std::chrono::seconds(2), DrainMeter::kWindow * 100}) {
    testing::FakeClock clock;
    DrainMeter meter;
    meter.Begin(clock.Now());
    Leave(40, 100ms, &clock, &meter);
    clock.Advance(idle);
    meter.Begin(clock.Now());
    EXPECT_NEAR(meter.SecondsFor(clock.Now(), 20), 2, 0.3);
    Leave(2, 5ms, &clock, &meter);
    EXPECT_NEAR(meter.SecondsFor(clock.Now(), 20), 2, 0.3);
    clock.Advance(10s);  // and no other: it has become slow
    EXPECT_NEAR(meter.SecondsFor(clock.Now(), 2), 10, 0.3);
  }
}

// A request now and then, which never waits, is no slow queue, and makes none forgotten.
TEST(DrainMeterTest, WhatLeavesAtOnceKeepsTheFormerRate) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(40, 100ms, &clock, &meter);
  for (int i = 0; i < 10; ++i) {
    clock.Advance(5s);
    meter.Begin(clock.Now());
    Leave(1, 1ms, &clock, &meter);
  }
  clock.Advance(5s);
  meter.Begin(clock.Now());
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 20), 2, 0.3);
}

// It took a free slot, and says nothing of how a queue drains.
TEST(DrainMeterTest, ALoneOneThatLeftAtOnceIsNoRate) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(1, 2ms, &clock, &meter);
  clock.Advance(5s);
  meter.Begin(clock.Now());
  clock.Advance(5ms);
  EXPECT_LE(meter.SecondsFor(clock.Now(), 8), 0.1);
}

// 320 a second, of a thousand that came a quarter of a second ago.
TEST(DrainMeterTest, WithinTheFirstSecondARateIsThatOfTheTimeThatHasPassed) {
  for (const auto former : {0ms, 2ms, 250ms}) {  // nothing before, a lone one, four a second
    testing::FakeClock clock;
    DrainMeter meter;
    if (former > 0ms) {
      meter.Begin(clock.Now());
      Leave(former > 100ms ? 20 : 1, former, &clock, &meter);
      clock.Advance(5s);
    }
    meter.Begin(clock.Now());
    for (int i = 0; i < 50; ++i) {
      clock.Advance(5ms);
      meter.Add(clock.Now(), i % 5 < 2 ? 1 : 2);
    }
    EXPECT_NEAR(meter.SecondsFor(clock.Now(), 920), 2.9, 0.2);
  }
}

// As many as there are free slots leave at once; each of the others waits for one to end.
TEST(DrainMeterTest, WhatTookFreeSlotsDoesNotCountOnceOthersHaveLeft) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(8, 1ms, &clock, &meter);
  clock.Advance(492ms);
  for (int i = 0; i < 8; ++i) meter.Add(clock.Now(), 1);
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 16), 1, 0.1);
}

TEST(DrainMeterTest, AQueueThatWasSoonGoneHasItsOwnRate) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  Leave(100, 5ms, &clock, &meter);
  clock.Advance(1h);
  meter.Begin(clock.Now());
  EXPECT_NEAR(meter.SecondsFor(clock.Now(), 800), 4, 0.2);
}

// Two milliseconds between two of them make no five hundred a second.
TEST(DrainMeterTest, TwoThatLeaveOneBehindTheOtherAreNoQuickQueue) {
  testing::FakeClock clock;
  DrainMeter meter;
  meter.Begin(clock.Now());
  clock.Advance(97ms);
  Leave(2, 2ms, &clock, &meter);
  EXPECT_GE(meter.SecondsFor(clock.Now(), 100), 5);
}

}  // namespace
}  // namespace refrain::engine
