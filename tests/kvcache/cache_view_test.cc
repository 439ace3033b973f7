#include "kvcache/cache_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <vector>

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

// Each that runs has a tree of its own, where a fork is seen to share.
TEST(CacheViewOffTest, TellsOfWhatRunsWithoutPrefixCache) {
  CacheHarness h({.num_chunks = 32, .chunk_tokens = 4, .max_slots = 8, .prefix_cache = false});
  h.Run(1, "abcdefghij");
  ASSERT_TRUE(h.Fork(2, 1, 8).ok());
  h.Run(3, "abcdefghij", "salt");
  const CacheView view = h.cache->Describe({});
  EXPECT_EQ(view.total_namespaces, 2);
  ASSERT_EQ(view.namespaces.size(), 2u);
  EXPECT_FALSE(view.namespaces[0].salted);
  EXPECT_TRUE(view.namespaces[1].salted);
  ASSERT_EQ(static_cast<int32_t>(view.nodes.size()), view.total_nodes);
  ASSERT_EQ(view.nodes.size(), 6u);
  EXPECT_EQ(view.nodes[0].name_space, 0);
  EXPECT_EQ(view.nodes[0].sharers, 2);
  EXPECT_EQ(view.nodes[1].name_space, 1);
  EXPECT_EQ(view.nodes[1].sharers, 1);
  const SessionList list = h.cache->ListSessions(2);
  ASSERT_EQ(list.sessions.size(), 2u);
  EXPECT_NE(list.sessions[0].salted, list.sessions[1].salted);
  for (const uint64_t id : {1, 2, 3}) h.Leave(id);
  EXPECT_EQ(h.cache->Describe({}).total_namespaces, 0);
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

TEST_F(CacheViewTest, ListsSessionsTheLastUsedFirst) {
  const SessionList list = h.cache->ListSessions(100);
  EXPECT_EQ(list.total_sessions, 4);
  ASSERT_EQ(list.sessions.size(), 4u);
  struct Want {
    std::string text, salt;
    int32_t chunks, own_chunks, sharers;
  };
  const Want wanted[] = {{"other text", "", 3, 3, 0},
                         {"secret", "salt", 2, 2, 1},
                         {"abcdefghxyz0zz", "", 4, 2, 1},
                         {"abcdefghij", "", 3, 1, 1}};
  for (size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(wanted[i].text);
    const CacheSession& session = list.sessions[i];
    EXPECT_EQ(session.leaf, h.Match(CellsOf(wanted[i].text), wanted[i].salt).node);
    EXPECT_EQ(session.num_tokens, static_cast<int32_t>(wanted[i].text.size()));
    EXPECT_EQ(session.num_chunks, wanted[i].chunks);
    EXPECT_EQ(session.own_chunks, wanted[i].own_chunks);
    EXPECT_EQ(session.sharers, wanted[i].sharers);
    EXPECT_EQ(session.salted, !wanted[i].salt.empty());
    EXPECT_EQ(session.age_requests, static_cast<int64_t>(i));
    EXPECT_FALSE(session.pinned);
  }
}

// Who comes back is first again, and counts as a hit; a pin keeps the last whole chunk.
TEST_F(CacheViewTest, SessionsTellWhoCameBackAndWhatIsPinned) {
  h.Run(5, "abcdefghij");
  EXPECT_EQ(h.cache->Pin({}, SpanOf(CellsOf("other text")).span()), 8);
  const SessionList first = h.cache->ListSessions(1);
  EXPECT_EQ(first.total_sessions, 4);
  ASSERT_EQ(first.sessions.size(), 1u);
  EXPECT_EQ(first.sessions[0].hits, 1);
  EXPECT_EQ(first.sessions[0].age_requests, 0);
  EXPECT_EQ(first.sessions[0].num_tokens, 10);
  const SessionList all = h.cache->ListSessions(100);
  for (const CacheSession& session : all.sessions) {
    EXPECT_EQ(session.pinned, session.own_chunks == 3) << session.num_tokens;
  }
  EXPECT_TRUE(h.cache->ListSessions(0).sessions.empty());
}

// A hundred answers to one long prompt: to go its way for each of them would cost a hundred times
// what one costs.
TEST(SessionListTest, WhatSessionsShareIsLookedAtOnce) {
  constexpr int32_t kShared = 4096;
  CacheHarness h({.num_chunks = kShared + 200, .chunk_tokens = 4, .max_slots = 101});
  const auto grow = [&](uint64_t id, int32_t tokens, int32_t token) {
    const SequenceId sequence{id};
    std::vector<int32_t> positions(static_cast<size_t>(tokens));
    std::iota(positions.begin(), positions.end(), h.cache->appended_tokens(sequence));
    ASSERT_TRUE(h.cache->Reserve(sequence, tokens).ok());
    std::vector<TokenPlace> places;
    h.cache->Append(sequence, positions, &places);
    h.cache->Publish(sequence, std::vector<TokenId>(positions.size(), TokenId{token}));
  };
  h.Join(1);
  grow(1, 4 * kShared, 0);
  for (uint64_t id = 2; id <= 101; ++id) {
    ASSERT_TRUE(h.cache->Fork(SequenceId{id}, SequenceId{1}, 4 * kShared).ok());
    grow(id, 4, static_cast<int32_t>(id));
  }
  const auto best_us = [&](int32_t sessions) {
    double best = 1e9;
    for (int i = 0; i < 10; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(h.cache->ListSessions(sessions).sessions.size(), static_cast<size_t>(sessions));
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - begin;
      best = std::min(best, time.count());
    }
    return best;
  };
  const double one_us = best_us(1);
  EXPECT_LT(best_us(100), 10 * one_us + 100) << one_us;
}

}  // namespace
}  // namespace refrain::kvcache
