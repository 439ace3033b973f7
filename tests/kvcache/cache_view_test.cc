#include "kvcache/cache_view.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/kvcache/cache_harness.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::CacheHarness;
using ::refrain::testing::CellsOf;
using ::refrain::testing::SpanOf;

// Chunks of four tokens: 1 and 2 share "abcdefgh", 3 has a salt, 4 left and came back.
class CacheViewTest : public ::testing::Test {
 protected:
  CacheViewTest() {
    h.Run(1, "abcdefghij");
    h.Run(2, "abcdefghxyz0zz");
    h.Run(3, "secret", "salt");
    h.Run(4, "other text");
    h.Leave(4);
  }

  CacheHarness h{{.num_chunks = 32, .chunk_tokens = 4, .max_slots = 8}};
};

TEST_F(CacheViewTest, TellsOfEveryChunkParentsFirst) {
  const CacheView view = h.cache->Describe({});
  EXPECT_EQ(view.total_nodes, h.cache->tree().num_nodes());
  ASSERT_EQ(static_cast<int32_t>(view.nodes.size()), view.total_nodes);
  EXPECT_EQ(view.stats.sequences, 3);
  std::map<NodeId, const CacheViewNode*> seen;
  std::map<NodeId, int32_t> children;
  int32_t first_chunks = 0;
  for (const CacheViewNode& node : view.nodes) {
    EXPECT_TRUE(seen.emplace(node.id, &node).second);
    if (!node.parent.has_value()) {
      ++first_chunks;
      EXPECT_EQ(node.depth, 1);
      continue;
    }
    ASSERT_TRUE(seen.contains(*node.parent));
    EXPECT_EQ(node.depth, seen[*node.parent]->depth + 1);
    EXPECT_EQ(node.name_space, seen[*node.parent]->name_space);
    ++children[*node.parent];
  }
  for (const CacheViewNode& node : view.nodes) EXPECT_EQ(node.num_children, children[node.id]);
  ASSERT_EQ(view.namespaces.size(), 2u);
  EXPECT_NE(view.namespaces[0].salted, view.namespaces[1].salted);
  EXPECT_EQ(view.namespaces[0].first_chunks + view.namespaces[1].first_chunks, first_chunks);
}

TEST_F(CacheViewTest, CountsSharersHitsAndAge) {
  const CacheView view = h.cache->Describe({});
  const NodeId first = h.Match(CellsOf("abcd")).node;
  const NodeId tail = h.Match(CellsOf("abcdefghij")).node;
  const NodeId idle = h.Match(CellsOf("othe")).node;
  for (const CacheViewNode& node : view.nodes) {
    if (node.id == first) {
      EXPECT_EQ(node.sharers, 2);
      EXPECT_EQ(node.hits, 1);
      EXPECT_EQ(node.age_requests, 2);  // requests 3 and 4 came after
      EXPECT_EQ(node.num_tokens, 4);
      EXPECT_FALSE(node.writer.has_value());
      EXPECT_EQ(node.chunk, h.cache->tree().node(first).chunk);
    } else if (node.id == tail) {
      EXPECT_EQ(node.sharers, 1);
      EXPECT_EQ(node.num_tokens, 2);
      EXPECT_EQ(node.writer, SequenceId{1});
      EXPECT_EQ(node.age_requests, 3);
    } else if (node.id == idle) {
      EXPECT_EQ(node.sharers, 0);
      EXPECT_EQ(node.age_requests, 0);
    }
    EXPECT_FALSE(node.pinned);
  }
  EXPECT_EQ(h.cache->Pin({}, SpanOf(CellsOf("othe")).span()), 4);
  for (const CacheViewNode& node : h.cache->Describe({}).nodes) {
    EXPECT_EQ(node.pinned, node.id == idle);
  }
}

TEST_F(CacheViewTest, KeepsToItsLimitsAndStartsWithWhatComesFirst) {
  const CacheView shallow = h.cache->Describe({.max_depth = 1});
  EXPECT_EQ(shallow.nodes.size(), 3u);
  for (const CacheViewNode& node : shallow.nodes) EXPECT_FALSE(node.parent.has_value());
  EXPECT_EQ(h.cache->Describe({.max_nodes = 5}).nodes.size(), 5u);
  EXPECT_EQ(h.cache->Describe({.max_nodes = 5}).total_nodes, shallow.total_nodes);
  const CacheView one = h.cache->Describe({.max_nodes = 1});
  EXPECT_EQ(one.nodes.size(), 1u);
  EXPECT_EQ(one.namespaces.size(), 1u);
  EXPECT_EQ(one.total_namespaces, 2);
  EXPECT_EQ(h.cache->Describe({.max_nodes = 3}).nodes.back().depth, 1);
}

}  // namespace
}  // namespace refrain::kvcache
