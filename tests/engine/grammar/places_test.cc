#include "engine/grammar/places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {
namespace {

// The states that wait, from the last call to the first.
std::vector<StateId> Waiting(const FrameArena& frames, FrameId frame) {
  std::vector<StateId> waiting;
  for (; frame != kNobody; frame = frames.at(frame).below) {
    waiting.push_back(frames.at(frame).back);
  }
  return waiting;
}

// Two places that wait for the same.
TEST(FrameArenaTest, MakesEqualFramesOne) {
  FrameArena frames;
  const FrameId first = frames.Push(StateId{5}, kNobody);
  const FrameId above = frames.Push(StateId{5}, first);
  EXPECT_EQ(frames.Push(StateId{5}, kNobody), first);
  EXPECT_EQ(frames.Push(StateId{5}, first), above);
  EXPECT_NE(frames.Push(StateId{6}, first), above);
  EXPECT_EQ(frames.size(), 4u);
}

// A walk finds the frames of its matcher, and adds its own without changing those.
TEST(FrameArenaTest, GoesOnAboveABase) {
  FrameArena base;
  const FrameId low = base.Push(StateId{1}, kNobody);
  const FrameId high = base.Push(StateId{2}, low);
  FrameArena frames(&base);
  EXPECT_EQ(frames.Push(StateId{2}, low), high);
  const FrameId own = frames.Push(StateId{3}, high);
  EXPECT_EQ(frames.Push(StateId{3}, high), own);
  EXPECT_EQ(Waiting(frames, own), (std::vector{StateId{3}, StateId{2}, StateId{1}}));
  EXPECT_EQ(base.size(), 3u);
  std::vector<Place> kept = {{StateId{9}, low}};
  frames.KeepOnly(kept);
  EXPECT_EQ(kept[0].frame, low);
  EXPECT_EQ(frames.Push(StateId{4}, high), own);  // its id is free again
}

// Random trees of frames of which a few places are kept, again and again.
TEST(FrameArenaTest, KeepsWhatPlacesWaitForAndNothingElse) {
  std::mt19937 random(1);
  FrameArena frames;
  std::vector<Place> places = {{StateId{0}, kNobody}};
  for (int round = 0; round < 200; ++round) {
    std::vector<FrameId> known = {kNobody};
    for (const Place& place : places) known.push_back(place.frame);
    for (int i = 0; i < 30; ++i) {
      known.push_back(
          frames.Push(StateId{static_cast<int32_t>(random() % 3)}, known[random() % known.size()]));
    }
    places.clear();
    for (int32_t i = 0; i < 4; ++i) {
      places.push_back({StateId{i}, known[random() % known.size()]});
    }
    std::vector<std::vector<StateId>> before;
    size_t deepest = 0, all = 0;
    for (const Place& place : places) {
      before.push_back(Waiting(frames, place.frame));
      deepest = std::max(deepest, before.back().size());
      all += before.back().size();
    }
    frames.KeepOnly(places);
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(Waiting(frames, places[i].frame), before[i]);
    }
    EXPECT_GE(frames.size(), 1 + deepest);
    EXPECT_LE(frames.size(), 1 + all);
    for (const Place& place : places) {  // found again, not made anew
      if (place.frame == kNobody) continue;
      const FrameArena::Frame frame = frames.at(place.frame);
      EXPECT_EQ(frames.Push(frame.back, frame.below), place.frame);
    }
  }
}

Grammar Finish(GrammarBuilder builder, RuleId root) {
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *std::move(grammar);
}

struct Mover {
  explicit Mover(Grammar made) : grammar(std::move(made)) {
    at.places = {{grammar.start(grammar.root()), kNobody}};
    mover.Close(grammar, &frames, &at);
  }
  void Step(std::string_view bytes) {
    for (const char byte : bytes) {
      PlaceSet next;
      mover.Step(grammar, &frames, at.places, static_cast<uint8_t>(byte), &next);
      at = next;
    }
  }
  Grammar grammar;
  FrameArena frames;
  PlaceMover mover;
  PlaceSet at;
};

// list = "a" list | "b": whoever ends a list has ended all of them.
TEST(PlaceMoverTest, PutsNoFrameForATailCall) {
  GrammarBuilder builder;
  const RuleId list = builder.AddRule();
  builder.AddCall(builder.AddLiteral(builder.begin(list), "a"), list, builder.end(list));
  builder.AddSkip(builder.AddLiteral(builder.begin(list), "b"), builder.end(list));
  Mover mover(Finish(std::move(builder), list));
  mover.Step("aaaaaaaaaa");
  EXPECT_EQ(mover.frames.size(), 1u);
  EXPECT_EQ(mover.at.places.size(), 1u);
  EXPECT_FALSE(mover.at.ended);
  mover.Step("b");
  EXPECT_TRUE(mover.at.places.empty());
  EXPECT_TRUE(mover.at.ended);
}

// Rules that may be empty call each other round and round: item = "x"?, list = item*.
TEST(PlaceMoverTest, EndsWhereRulesMayBeEmpty) {
  GrammarBuilder builder;
  const RuleId list = builder.AddRule(), item = builder.AddRule();
  builder.AddCall(builder.begin(list), item, builder.begin(list));
  builder.AddSkip(builder.begin(list), builder.end(list));
  builder.AddSkip(builder.begin(item), builder.end(item));
  builder.AddSkip(builder.AddLiteral(builder.begin(item), "x"), builder.end(item));
  Mover mover(Finish(std::move(builder), list));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(mover.at.ended);
    EXPECT_FALSE(mover.at.places.empty());
    mover.Step("x");
  }
}

}  // namespace
}  // namespace refrain::engine
