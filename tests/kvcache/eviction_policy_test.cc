#include "kvcache/eviction_policy.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace refrain::kvcache {
namespace {

constexpr NodeId kNode(int32_t id) { return NodeId{id}; }

// Plays the tree to a policy: paths of chunks named by letters, one request at a time. A chunk's
// name is its whole path, so that an evicted one is recognised when it comes again.
class PolicyTree {
 public:
  PolicyTree(const std::string& policy, int32_t capacity)
      : capacity_(capacity), policy_(*MakeEvictionPolicy(policy, capacity)) {}

  // Returns how many of its chunks were there. `generated`: the last so many are an answer.
  size_t Request(const std::string& path, size_t generated = 0,
                 AnswerEnd answer = AnswerEnd::kOther) {
    const size_t matched = Join(path, generated);
    Leave(path, answer);
    return matched;
  }

  // Its parts.
  size_t Join(const std::string& path, size_t generated = 0) {
    const size_t matched = Admit(path);
    Compute(path, matched, generated);
    return matched;
  }
  size_t Admit(const std::string& path) {
    size_t matched = 0;
    while (matched < path.size() && nodes_.contains(path.substr(0, matched + 1))) ++matched;
    policy_->RequestJoined();
    for (size_t i = 1; i <= matched; ++i) policy_->Hit(nodes_.at(path.substr(0, i)));
    for (size_t i = 1; i <= matched; ++i) Use(path.substr(0, i));
    return matched;
  }
  void Compute(const std::string& path, size_t matched, size_t generated = 0) {
    for (size_t i = matched + 1; i <= path.size(); ++i) {
      if (static_cast<int32_t>(nodes_.size()) == capacity_) EvictOne();
      Insert(path.substr(0, i), i + generated > path.size());
    }
  }
  void Leave(const std::string& path, AnswerEnd answer = AnswerEnd::kOther) {
    policy_->Leaving(nodes_.at(path), answer);
    for (size_t i = 1; i <= path.size(); ++i) used_.erase(used_.find(path.substr(0, i)));
    SetIdleIfLeaf(path);
  }

  std::string EvictOne() {
    const std::optional<NodeId> victim = policy_->Victim();
    EXPECT_TRUE(victim.has_value());
    EXPECT_EQ(policy_->Victim(), victim);  // asking changes nothing
    for (const auto& [path, node] : nodes_) {
      if (node != *victim) continue;
      EXPECT_TRUE(idle_.contains(path)) << path;
      const std::string gone = path;
      policy_->Evicted(node);
      free_.push_back(node);
      idle_.erase(gone);
      nodes_.erase(gone);
      if (gone.size() > 1) SetIdleIfLeaf(gone.substr(0, gone.size() - 1));
      return gone;
    }
    ADD_FAILURE() << "no such node";
    return "";
  }

  void EvictAll() {
    while (!nodes_.empty()) EvictOne();
  }

  bool Has(const std::string& path) const { return nodes_.contains(path); }
  EvictionPolicy& policy() { return *policy_; }
  // Each chunk is computed in two pieces from now on.
  void ComputeInPieces() { in_pieces_ = true; }

 private:
  void Use(const std::string& path) {
    used_.insert(path);
    if (idle_.erase(path) > 0) policy_->Busy(nodes_.at(path));
  }

  void Insert(const std::string& path, bool generated) {
    const NodeId node = free_.empty() ? NodeId{next_++} : free_.back();
    if (!free_.empty()) free_.pop_back();
    const std::string parent = path.substr(0, path.size() - 1);
    ChunkTraits traits{.depth_tokens = static_cast<int32_t>(2 * parent.size()),
                       .tokens = 2,
                       .reuse = generated ? ReuseClass::kGenerated : ReuseClass::kPrompt,
                       .parent = parent.empty() ? NodeId{0} : nodes_.at(parent),
                       .lineage_hash = std::hash<std::string>()(path) | 1};
    if (in_pieces_) {
      ChunkTraits first = traits;
      first.tokens = 1;
      first.lineage_hash = 0;
      policy_->Inserted(node, first);
      policy_->Changed(node, traits);
    } else {
      policy_->Inserted(node, traits);
    }
    nodes_[path] = node;
    used_.insert(path);
  }

  void SetIdleIfLeaf(const std::string& path) {
    if (used_.contains(path)) return;
    for (const auto& [other, node] : nodes_) {
      if (other.size() == path.size() + 1 && other.compare(0, path.size(), path) == 0) return;
    }
    idle_.insert(path);
    policy_->Idle(nodes_.at(path));
  }

  const int32_t capacity_;
  bool in_pieces_ = false;
  std::unique_ptr<EvictionPolicy> policy_;
  std::map<std::string, NodeId> nodes_;
  std::set<std::string> idle_;
  std::multiset<std::string> used_;
  std::vector<NodeId> free_;
  int32_t next_ = 1;  // 0 is the root
};

TEST(EvictionPolicy, UnknownNameListsTheKnownOnes) {
  const auto made = MakeEvictionPolicy("fifo", 8);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(),
            "kv_cache.eviction is \"fifo\", must be one of: lru, s3fifo, reuse_rate");
}

class EveryPolicy : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Names, EveryPolicy, ::testing::Values("lru", "s3fifo", "reuse_rate"),
                         [](const auto& named) { return std::string(named.param); });

TEST_P(EveryPolicy, NamesNothingWhenNothingIsIdle) {
  EXPECT_EQ((*MakeEvictionPolicy(GetParam(), 8))->Victim(), std::nullopt);
}

TEST_P(EveryPolicy, EvictsALineageFromItsEnd) {
  PolicyTree tree(GetParam(), 8);
  tree.Request("abc");
  EXPECT_EQ(tree.EvictOne(), "abc");
  EXPECT_EQ(tree.EvictOne(), "ab");
  EXPECT_EQ(tree.EvictOne(), "a");
}

TEST_P(EveryPolicy, ForgetsADroppedChunk) {
  const auto policy = *MakeEvictionPolicy(GetParam(), 8);
  policy->RequestJoined();
  policy->Inserted(kNode(1), {.tokens = 1, .parent = kNode(0), .lineage_hash = 7});
  policy->Idle(kNode(1));
  EXPECT_EQ(policy->Victim(), kNode(1));
  policy->Dropped(kNode(1));
  EXPECT_EQ(policy->Victim(), std::nullopt);
}

// A request stands at an idle chunk when another one needs room.
TEST_P(EveryPolicy, SparesAChunkThatIsBusyAgain) {
  const auto policy = *MakeEvictionPolicy(GetParam(), 8);
  for (int32_t id : {1, 2}) {
    policy->RequestJoined();
    policy->Inserted(kNode(id), {.tokens = 1, .parent = kNode(0), .lineage_hash = 7u + id});
    policy->Idle(kNode(id));
  }
  policy->RequestJoined();
  policy->Hit(kNode(1));
  policy->Busy(kNode(1));
  EXPECT_EQ(policy->Victim(), kNode(2));
  policy->Busy(kNode(2));
  EXPECT_EQ(policy->Victim(), std::nullopt);
}

// Pseudo-random sessions; the helper checks that each victim is an idle leaf.
TEST_P(EveryPolicy, NamesIdleLeavesOnly) {
  PolicyTree tree(GetParam(), 40);
  uint32_t state = 1;
  for (int i = 0; i < 3000; ++i) {
    std::string path;
    const size_t length = 1 + (state >> 16) % 12;
    for (size_t k = 0; k < length; ++k) {
      state = state * 1664525u + 1013904223u;
      path += static_cast<char>('a' + (state >> 28) % 3);
    }
    tree.Request(path);
  }
}

TEST(LruPolicy, EvictsWhatWasUsedLeastRecently) {
  PolicyTree tree("lru", 8);
  tree.Request("a");
  tree.Request("b");
  tree.Request("c");
  tree.Request("a");
  EXPECT_EQ(tree.EvictOne(), "b");
  EXPECT_EQ(tree.EvictOne(), "c");
  EXPECT_EQ(tree.EvictOne(), "a");
}

// One request after the other comes once; a chunk that two asked for twice survives the flood.
TEST(S3FifoPolicy, OneHitWondersLeaveTheMainQueueAlone) {
  PolicyTree tree("s3fifo", 20);
  for (int i = 0; i < 3; ++i) tree.Request("z");
  for (char c = 'a'; c < 'y'; ++c) tree.Request(std::string(1, c));
  for (char c = 'A'; c < 'Z'; ++c) tree.Request(std::string(1, c));
  EXPECT_TRUE(tree.Has("z"));
  EXPECT_FALSE(tree.Has("a"));
}

// `a` went without a hit, but comes again while its ghost is remembered.
TEST(S3FifoPolicy, AGhostReturnsToTheMainQueue) {
  PolicyTree tree("s3fifo", 20);
  for (char c = 'a'; c < 'y'; ++c) tree.Request(std::string(1, c));
  ASSERT_FALSE(tree.Has("a"));
  tree.Request("a");
  for (char c = 'A'; c < 'Z'; ++c) tree.Request(std::string(1, c));
  EXPECT_TRUE(tree.Has("a"));
}

// Its first ghost, of before it was in the main queue, is forgotten in its turn; the second is not.
TEST(S3FifoPolicy, AGhostThatComesAgainIsRememberedFromThenOn) {
  const auto policy = *MakeEvictionPolicy("s3fifo", 4);  // four ghosts, a small queue of one
  const auto come = [&](int32_t id, uint64_t lineage_hash) {
    policy->Inserted(kNode(id), {.tokens = 1, .parent = kNode(0), .lineage_hash = lineage_hash});
    policy->Idle(kNode(id));
  };
  for (const uint64_t lineage_hash : {1, 1, 1, 2, 3, 4}) {
    come(1, lineage_hash);
    policy->Evicted(kNode(1));
  }
  come(1, 1);
  come(2, 5);
  EXPECT_EQ(policy->Victim(), kNode(2)) << "the other is in the small queue, too, and older";
}

// "abx" is left for "aby": its end goes before that of a session that was used earlier.
TEST(ReuseRatePolicy, WhatAConversationLeftBehindGoesFirst) {
  PolicyTree tree("reuse_rate", 100);
  tree.Request("q");
  tree.Request("abx");
  tree.Request("aby");
  EXPECT_EQ(tree.EvictOne(), "abx");
}

constexpr int kSessions = 120;

std::string Session(int i) { return std::string(1, static_cast<char>(1 + i)); }
std::string Single(int i) { return std::string(1, static_cast<char>(128 + i)); }

// Sessions of three turns and single requests alternate.
void RunSessions(PolicyTree* tree) {
  for (int i = 0; i < kSessions; ++i) {
    tree->Request(Session(i));
    tree->Request(Single(i));
    if (i >= 3) tree->Request(Session(i - 3) + "x");
    if (i >= 6) tree->Request(Session(i - 6) + "xy");
  }
}

// After some of them, the end of a session that was continued before is worth more than that of a
// single request that came later.
TEST(ReuseRatePolicy, LearnsThatSessionsAreContinued) {
  PolicyTree tree("reuse_rate", 4000);
  RunSessions(&tree);
  tree.Request(Session(kSessions));
  tree.Request(Session(kSessions) + "x");
  tree.Request(Single(kSessions));
  while (tree.Has(Session(kSessions) + "x")) tree.EvictOne();
  EXPECT_FALSE(tree.Has(Single(kSessions)));
}

// Of those that call tools all come back, of the others every second one, each after nothing is
// left of it. The first are admitted and computed one by one, or eight in one plan, or in pieces.
TEST(ReuseRatePolicy, LearnsTheSameFromThoseThatAreAdmittedTogether) {
  enum Way { kOneByOne, kTogether, kInPieces };
  for (const Way way : {kOneByOne, kTogether, kInPieces}) {
    PolicyTree tree("reuse_rate", 4000);
    if (way == kInPieces) tree.ComputeInPieces();
    const auto run_calls = [&](const std::vector<std::string>& paths) {
      if (way != kTogether) {
        for (const auto& path : paths) tree.Request(path, 0, AnswerEnd::kToolCalls);
        return;
      }
      for (const auto& path : paths) EXPECT_EQ(tree.Admit(path), 0u);
      for (const auto& path : paths) tree.Compute(path, 0);
      for (const auto& path : paths) tree.Leave(path, AnswerEnd::kToolCalls);
    };
    char next = 1;
    for (int round = 0; round < 12; ++round) {
      std::vector<std::string> calls, calls_again, reads;
      for (int i = 0; i < 8; ++i) {
        calls.push_back(std::string(1, next++));
        calls_again.push_back(calls.back() + "x");
        reads.push_back(std::string(1, next++));
      }
      run_calls(calls);
      for (const auto& path : reads) tree.Request(path, 0, AnswerEnd::kTurn);
      tree.EvictAll();
      run_calls(calls_again);
      for (int i = 0; i < 4; ++i) tree.Request(reads[static_cast<size_t>(i)] + "x");
      tree.EvictAll();
    }
    tree.Request("\xf0", 0, AnswerEnd::kToolCalls);
    tree.Request("\xf1", 0, AnswerEnd::kTurn);
    tree.Request("\xf2", 0, AnswerEnd::kToolCalls);
    tree.EvictOne();
    EXPECT_FALSE(tree.Has("\xf1")) << way;
  }
}

// Those that make way, and run again when nothing is left of them, never came back; of those that
// call tools one in four does.
TEST(ReuseRatePolicy, WhoRunsAgainHasNotComeBack) {
  PolicyTree tree("reuse_rate", 4000);
  for (int i = 0; i < 96; ++i) {
    const std::string runs_again(1, static_cast<char>(1 + i)), call(1, static_cast<char>(101 + i));
    tree.Request(call, 0, AnswerEnd::kToolCalls);
    tree.Request(runs_again);
    tree.EvictAll();
    if (i % 4 == 0) tree.Request(call + "x", 0, AnswerEnd::kToolCalls);
    for (int rest = 0; rest < 2; ++rest) tree.Request("\xff", 0, AnswerEnd::kTurn);
    tree.EvictAll();
    tree.Compute(runs_again, 0);
    tree.Leave(runs_again);
    tree.EvictAll();
  }
  tree.Request("\xf0", 0, AnswerEnd::kToolCalls);
  tree.Request("\xf1");
  EXPECT_EQ(tree.EvictOne(), "\xf1");
}

// A stranger is admitted with the next turn of a conversation of which the first chunk is left, in
// another namespace or the same one: it is no conversation that came back for that.
TEST(ReuseRatePolicy, AStrangerTakesNoConversationForItsOwn) {
  constexpr int32_t kRoot = 5000;
  for (const int32_t root_of_stranger : {kRoot, kRoot + 1}) {
    PolicyTree tree("reuse_rate", 4000);
    RunSessions(&tree);
    EvictionPolicy& policy = tree.policy();
    const auto insert = [&](int32_t id, int32_t parent) {
      policy.Inserted(
          kNode(id),
          {.tokens = 1, .parent = kNode(parent), .lineage_hash = 77u + static_cast<uint32_t>(id)});
    };
    const auto leave = [&](int32_t id) {
      policy.Leaving(kNode(id), AnswerEnd::kOther);
      policy.Idle(kNode(id));
    };
    policy.RequestJoined();
    insert(1001, kRoot);
    insert(1002, 1001);
    leave(1002);
    policy.Evicted(kNode(1002));
    policy.Idle(kNode(1001));
    policy.RequestJoined();
    policy.RequestJoined();
    policy.Hit(kNode(1001));
    policy.Busy(kNode(1001));
    insert(1003, root_of_stranger);
    insert(1004, 1001);
    leave(1003);
    leave(1004);
    NodeId victim = *policy.Victim();
    while (victim != kNode(1003) && victim != kNode(1004)) {
      policy.Evicted(victim);
      victim = *policy.Victim();
    }
    EXPECT_EQ(victim, kNode(1003)) << root_of_stranger;
  }
}

// Results of tools come with the next request but one, readers after 40.
TEST(ReuseRatePolicy, LearnsThatResultsOfToolsComeSoon) {
  const auto name = [](AnswerEnd answer, int i) {
    return std::string{static_cast<char>(1 + static_cast<int>(answer)), static_cast<char>(1 + i)};
  };
  constexpr int kConversations = 120;
  for (const bool call_first : {true, false}) {
    PolicyTree tree("reuse_rate", 4000);
    for (int i = 0; i < kConversations + 40; ++i) {
      for (const AnswerEnd answer : {AnswerEnd::kToolCalls, AnswerEnd::kTurn}) {
        const int back = i - (answer == AnswerEnd::kToolCalls ? 1 : 40);
        if (i < kConversations) tree.Request(name(answer, i), 0, answer);
        if (back >= 0 && back < kConversations) tree.Request(name(answer, back) + "x");
      }
    }
    for (const bool calls : {call_first, !call_first}) {
      tree.Request(calls ? "call" : "read", 0, calls ? AnswerEnd::kToolCalls : AnswerEnd::kTurn);
    }
    while (tree.Has("call") && tree.Has("read")) tree.EvictOne();
    EXPECT_TRUE(tree.Has("call")) << call_first;
  }
}

// One joins from what the running one has, and goes another way: who runs has not been continued,
// and is known by how it ends.
TEST(ReuseRatePolicy, WhoJoinsARunningOneDoesNotContinueIt) {
  PolicyTree tree("reuse_rate", 4000);
  for (char c = 1; c < 120; ++c) {
    tree.Request(std::string(2, c), 0, AnswerEnd::kToolCalls);
    tree.Request(std::string(2, c) + "x", 0, AnswerEnd::kTurn);
  }
  tree.Join("call");
  tree.Join("care");
  tree.Leave("call", AnswerEnd::kToolCalls);
  tree.Leave("care", AnswerEnd::kTurn);
  while (tree.Has("call") && tree.Has("care")) tree.EvictOne();
  EXPECT_TRUE(tree.Has("call"));
}

// Strangers parted below a root that went with the last of them. In the namespace whose root has
// its id now a conversation goes on beside its first chunk, which it leaves behind.
TEST(ReuseRatePolicy, ARootHasNoChildrenOfAnotherThatHadItsId) {
  for (const int32_t strangers : {0, 20}) {
    const auto policy = *MakeEvictionPolicy("reuse_rate", 100);
    const auto come = [&](int32_t id, int32_t root) {
      policy->Inserted(kNode(id), {.tokens = 1, .parent = kNode(root)});
      policy->Leaving(kNode(id), AnswerEnd::kOther);
      policy->Idle(kNode(id));
    };
    for (int32_t i = 0; i < strangers; ++i) {
      policy->RequestJoined();
      come(10 + i, 0);
    }
    for (int32_t i = 0; i < strangers; ++i) policy->Dropped(kNode(10 + i));
    policy->RequestJoined();
    come(1, 50);
    policy->RequestJoined();
    come(2, 0);
    policy->RequestJoined();
    policy->HitInPart(kNode(2));
    come(3, 0);
    EXPECT_EQ(policy->Victim(), kNode(2)) << strangers;
  }
}

// Two ends of the same class, one behind 50,000 tokens, as old as each other but for what the
// statistics do not tell apart.
TEST(ReuseRatePolicy, OfEqualEndsTheOneDearerToComputeAgainStays) {
  for (const bool deep_first : {true, false}) {
    const auto policy = *MakeEvictionPolicy("reuse_rate", 8);
    for (const bool deep : {deep_first, !deep_first}) {
      policy->RequestJoined();
      policy->Inserted(kNode(deep ? 1 : 2), {.depth_tokens = deep ? 50000 : 0,
                                             .tokens = 1,
                                             .parent = kNode(0),
                                             .lineage_hash = deep ? 7u : 8u});
      policy->Idle(kNode(deep ? 1 : 2));
    }
    for (int i = 0; i < 8; ++i) policy->RequestJoined();
    EXPECT_EQ(policy->Victim(), kNode(2)) << (deep_first ? "deep first" : "deep last");
  }
}

// Conversations that end with an answer, or with a prompt, go on behind their end, or part from it
// one chunk before: of two ends that are as old, the one of this kind is worth more then, or less.
TEST(ReuseRatePolicy, LearnsWhetherTheEndOfAPromptOrOfAnAnswerComesBack) {
  for (const size_t generated : {0, 1}) {
    for (const bool comes_back : {true, false}) {
      PolicyTree tree("reuse_rate", 4000);
      for (char c = 1; c < 60; ++c) {
        tree.Request(std::string(1, c) + "ab", 2 * generated);
        tree.Request(std::string(1, c) + (comes_back ? "abc" : "ac"), generated);
      }
      tree.Request("xa", generated);
      tree.Request("ya", 1 - generated);
      for (char c = 'A'; c < 'A' + 8; ++c) tree.Request(std::string(1, c));
      while (tree.Has("xa") && tree.Has("ya")) tree.EvictOne();
      EXPECT_EQ(tree.Has("xa"), comes_back) << generated;
    }
  }
}

// Two running requests go on from one shared chunk in turns: neither takes the other's chunks for
// its own.
TEST(ReuseRatePolicy, KeepsConcurrentLineagesApart) {
  const auto policy = *MakeEvictionPolicy("reuse_rate", 8);
  const auto insert = [&](int32_t id, int32_t parent, int32_t depth) {
    policy->Inserted(kNode(id), {.depth_tokens = depth,
                                 .tokens = 1,
                                 .parent = kNode(parent),
                                 .lineage_hash = 100u + static_cast<uint32_t>(id)});
  };
  policy->RequestJoined();
  policy->RequestJoined();
  insert(1, 0, 0);
  insert(2, 0, 0);
  insert(3, 1, 1);
  insert(4, 2, 1);
  for (const int32_t id : {3, 4}) {
    policy->Leaving(kNode(id), AnswerEnd::kOther);
    policy->Idle(kNode(id));
  }
  // The first one's conversation goes another way: only its own end is left behind.
  policy->RequestJoined();
  policy->Hit(kNode(1));
  insert(5, 1, 1);
  EXPECT_EQ(policy->Victim(), kNode(3));
  policy->Evicted(kNode(3));
  EXPECT_EQ(policy->Victim(), kNode(4));
}

}  // namespace
}  // namespace refrain::kvcache
