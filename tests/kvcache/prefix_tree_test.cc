#include "kvcache/prefix_tree.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "tests/kvcache/cache_harness.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::CellsOf;
using ::refrain::testing::SpanOf;

constexpr int32_t kChunkTokens = 8;

struct Tree : PrefixTree {
  explicit Tree(uint64_t hash_mask = ~uint64_t{0})
      : PrefixTree(kChunkTokens, hash_mask), root(AddRoot({})) {}
  NodeId Add(NodeId parent, const std::string& text) {
    const SpanOf tokens(CellsOf(text, node(parent).end_tokens()));
    return AddChild(parent, ChunkId{0}, tokens.span());
  }
  bool Grow(NodeId id, const std::string& text) {
    const SpanOf tokens(CellsOf(text, node(id).end_tokens()));
    return Extend(id, tokens.span());
  }
  PrefixMatch Find(const std::string& text) const {
    return Match(root, SpanOf(CellsOf(text)).span());
  }
  NodeId root;
};

TEST(PrefixTreeTest, FollowsFullChunksAndEndsInThePartMatch) {
  Tree tree;
  const NodeId a = tree.Add(tree.root, "abcdefgh");
  const NodeId b = tree.Add(a, "ijklmnop");
  const NodeId c = tree.Add(a, "ijklxy");
  EXPECT_EQ(tree.Find("abcdefghijklmnopqr").node, b);
  EXPECT_EQ(tree.Find("abcdefghijklmnopqr").num_tokens, 16);
  EXPECT_EQ(tree.Find("abcdefghijklxz").node, c);
  EXPECT_EQ(tree.Find("abcdefghijklxz").num_tokens, 13);
  EXPECT_EQ(tree.Find("abcdefgh").node, a);
  EXPECT_EQ(tree.Find("x").node, tree.root);
  EXPECT_EQ(tree.CheckInvariants(), absl::OkStatus());
}

TEST(PrefixTreeTest, KnowsWhetherItGoesOnBehindAMatch) {
  Tree tree;
  const auto goes_on = [&](const std::string& text) { return tree.GoesOn(tree.Find(text)); };
  EXPECT_FALSE(goes_on("abc"));  // nothing is there
  const NodeId a = tree.Add(tree.root, "abcdefgh");
  EXPECT_TRUE(goes_on("abcx"));
  EXPECT_FALSE(goes_on("abcdefgh"));
  EXPECT_FALSE(goes_on("abcdefghijkl"));
  tree.Add(a, "ijk");
  EXPECT_TRUE(goes_on("abcdefgh"));
  EXPECT_FALSE(goes_on("abcdefghijkl"));
  // Two that end alike, then one that goes on behind them.
  tree.Add(a, "ijk");
  EXPECT_FALSE(goes_on("abcdefghijkx"));
  tree.Add(a, "ijklm");
  EXPECT_TRUE(goes_on("abcdefghijkx"));
  EXPECT_FALSE(goes_on("abcdefghijklmno"));
}

// Ten thousand children of random tokens, some grown in place: the best of them each time, found by
// comparing with all.
TEST(PrefixTreeTest, FindsTheBestPartMatchAmongTenThousandChildren) {
  Tree tree;
  std::mt19937 random(3);
  const auto text = [&](size_t length) {
    std::string made;
    while (made.size() < length) made += static_cast<char>('a' + random() % 6);
    return made;
  };
  std::vector<std::string> children;
  for (int i = 0; i < 10000; ++i) {
    std::string child = text(1 + random() % kChunkTokens);
    const SpanOf tokens(CellsOf(child));
    if (child.size() == kChunkTokens &&
        tree.FindFullChildOrNone(tree.root, tokens.span()) != kNoNode) {
      continue;
    }
    const NodeId id = tree.Add(tree.root, child);
    if (child.size() < 4) {
      const std::string more = text(1 + random() % 4);
      tree.Grow(id, more);
      child += more;
    }
    children.push_back(child);
  }
  ASSERT_EQ(tree.CheckInvariants(), absl::OkStatus());
  for (int i = 0; i < 500; ++i) {
    const std::string wanted = text(kChunkTokens - random() % 3);
    size_t best = 0;
    for (const std::string& child : children) {
      const auto end =
          std::mismatch(wanted.begin(), wanted.end(), child.begin(), child.end()).first;
      best = std::max(best, static_cast<size_t>(end - wanted.begin()));
    }
    ASSERT_EQ(tree.Find(wanted).num_tokens, static_cast<int32_t>(best)) << wanted;
  }
}

TEST(PrefixTreeTest, OnlyANodeThatWasAPrefixOfASiblingMovesWhenItGrows) {
  Tree tree;
  const NodeId a = tree.Add(tree.root, "abx");
  const NodeId b = tree.Add(tree.root, "ab");
  const uint64_t stamp = tree.node(tree.root).children_stamp;
  EXPECT_FALSE(tree.Grow(a, "y"));
  EXPECT_EQ(tree.node(tree.root).children_stamp, stamp);
  EXPECT_TRUE(tree.Grow(b, "z"));
  EXPECT_GT(tree.node(tree.root).children_stamp, stamp);
  EXPECT_EQ(tree.node(tree.root).children, (std::vector{a, b}));
  EXPECT_EQ(tree.Find("abz").node, b);
  EXPECT_EQ(tree.CheckInvariants(), absl::OkStatus());
}

TEST(PrefixTreeTest, KnowsWhoIsCovered) {
  Tree tree;
  const NodeId a = tree.Add(tree.root, "ab");
  EXPECT_EQ(tree.FindCoverOrNone(a), kNoNode);
  const NodeId b = tree.Add(tree.root, "abc");
  EXPECT_EQ(tree.FindCoverOrNone(a), b);
  EXPECT_EQ(tree.FindCoverOrNone(b), kNoNode);
  EXPECT_EQ(tree.CoveredNeighbours(b)[0], a);
  const NodeId c = tree.Add(tree.root, "abc");
  EXPECT_EQ(tree.FindCoverOrNone(b), c);
  EXPECT_EQ(tree.FindCoverOrNone(c), b);
  EXPECT_EQ(tree.CoveredNeighbours(b)[1], c);
  tree.Remove(c);
  EXPECT_EQ(tree.FindCoverOrNone(b), kNoNode);
}

TEST(PrefixTreeTest, ACutNodeMatchesNoFurther) {
  Tree tree;
  const NodeId a = tree.Add(tree.root, "abcdefgh");
  tree.Truncate(a, 3);
  EXPECT_EQ(tree.Find("abcdefgh").num_tokens, 3);
  EXPECT_EQ(tree.node(a).lineage_hash, 0u);
  tree.Grow(a, "DEFGH");
  EXPECT_EQ(tree.Find("abcDEFGH").num_tokens, 8);
  EXPECT_EQ(tree.CheckInvariants(), absl::OkStatus());
}

// Both begin with what was looked for; the cut one is first now, and the other one as good as it.
TEST(PrefixTreeTest, OnlyItsOwnCutEndsAMatchOfAllThatWasWanted) {
  Tree tree;
  const NodeId a = tree.Add(tree.root, "abcdX");
  const NodeId b = tree.Add(tree.root, "abcdeZ");
  tree.Grow(a, "Y");
  const NodeId c = tree.Add(tree.root, "abcdeZZ");
  ASSERT_EQ(tree.Find("abcde").node, b);
  const NodeId first = tree.Find("abcd").node;
  const NodeId later = first == a ? c : a;
  const PrefixTree::PrefixMatch match = tree.Find("abcd");
  const uint64_t stamp = tree.MatchStamp(match);
  tree.Truncate(later, 4);
  EXPECT_EQ(tree.Find("abcd").node, later);
  EXPECT_EQ(tree.MatchStamp(match), stamp);
  tree.Truncate(first, 4);
  EXPECT_NE(tree.MatchStamp(match), stamp);
}

TEST(PrefixTreeTest, ALineageHashNamesNamespaceIdsAndPositions) {
  Tree tree;
  const NodeId other = tree.AddRoot({"", "salt"});
  const NodeId a = tree.Add(tree.root, "abcdefgh");
  const NodeId b = tree.Add(other, "abcdefgh");
  const SpanOf moved(CellsOf("abcdefgh", 1));
  const NodeId c = tree.AddChild(tree.root, ChunkId{0}, moved.span());
  const NodeId d = tree.Add(a, "abcdefgh");
  const std::set<uint64_t> hashes = {tree.node(a).lineage_hash, tree.node(b).lineage_hash,
                                     tree.node(c).lineage_hash, tree.node(d).lineage_hash};
  EXPECT_EQ(hashes.size(), 4u);
  // Computed again, in two parts, it is the same.
  const uint64_t before = tree.node(b).lineage_hash;
  tree.Remove(b);
  const NodeId again = tree.Add(other, "abc");
  tree.Grow(again, "defgh");
  EXPECT_EQ(tree.node(again).lineage_hash, before);
}

// Three full siblings, one of them at other positions, and the like of the first one below it and
// in another namespace.
TEST(PrefixTreeTest, TellsLineagesOfOneHashApart) {
  Tree tree(/*hash_mask=*/0);
  const NodeId other = tree.AddRoot({"", "salt"});
  const SpanOf moved(CellsOf("abcdefgh", 1));
  const NodeId a = tree.Add(tree.root, "abcdefgh");
  const NodeId b = tree.Add(tree.root, "abcdefgH");
  const NodeId c = tree.AddChild(tree.root, ChunkId{0}, moved.span());
  const NodeId d = tree.Add(a, "abcdefgh");
  const NodeId e = tree.Add(other, "abcdefgh");
  for (const NodeId id : {b, c, d, e}) {
    ASSERT_EQ(tree.node(id).lineage_hash, tree.node(a).lineage_hash);
  }
  const auto child = [&](NodeId parent, const std::string& text) {
    const SpanOf tokens(CellsOf(text, tree.node(parent).end_tokens()));
    return tree.FindFullChildOrNone(parent, tokens.span());
  };
  EXPECT_EQ(child(tree.root, "abcdefgh"), a);
  EXPECT_EQ(child(tree.root, "abcdefgH"), b);
  EXPECT_EQ(tree.FindFullChildOrNone(tree.root, moved.span()), c);
  EXPECT_EQ(child(a, "abcdefgh"), d);
  EXPECT_EQ(child(other, "abcdefgh"), e);
  EXPECT_EQ(child(tree.root, "abcdefgx"), kNoNode);
  EXPECT_EQ(child(b, "abcdefgh"), kNoNode);
  EXPECT_EQ(tree.Find("abcdefgHabcdefgh").node, b);
  EXPECT_EQ(tree.Find("abcdefghabcdefgh").node, d);
  tree.Remove(c);  // neither the first nor the last that has the hash
  EXPECT_EQ(tree.FindFullChildOrNone(tree.root, moved.span()), kNoNode);
  EXPECT_EQ(child(tree.root, "abcdefgh"), a);
  EXPECT_EQ(child(other, "abcdefgh"), e);
  EXPECT_EQ(tree.CheckInvariants(), absl::OkStatus());
}

TEST(PrefixTreeTest, AnIdIsUsedAgainWithANewStamp) {
  Tree tree;
  const NodeId a = tree.Add(tree.root, "abc");
  const uint64_t stamp = tree.NodeStamp(a);
  tree.Remove(a);
  EXPECT_EQ(tree.MatchStamp({a, 3}), 0u);
  EXPECT_EQ(tree.Add(tree.root, "abc"), a);
  EXPECT_GT(tree.NodeStamp(a), stamp);
  EXPECT_EQ(tree.num_nodes(), 1);
}

}  // namespace
}  // namespace refrain::kvcache
