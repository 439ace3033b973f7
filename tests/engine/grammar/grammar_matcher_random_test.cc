#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_matcher.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/random_grammar.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/random_steps.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;
using ::refrain::testing::FakeTokenizer;
using ::refrain::testing::NaiveAcceptor;
using ::refrain::testing::RandomGrammar;
using ::refrain::testing::RandomSeed;
using ::refrain::testing::RandomSteps;
using ::refrain::testing::RandomVocabulary;

// The oracle keeps every path apart: ambiguous outputs are left before they cost too much.
constexpr size_t kMostNaivePlaces = 60;
constexpr int kMostTokens = 12;

// One output as the matcher and as the oracle follow it.
struct Pair {
  Pair(std::shared_ptr<const Grammar> grammar, std::shared_ptr<MaskStore> masks)
      : naive(grammar.get()), matcher(std::move(grammar), std::move(masks)) {}

  NaiveAcceptor naive;
  GrammarMatcher matcher;
};

struct Trials {
  TokenSet allowed;
  // Tokens that lead through so many places, to an end or not, that the matcher may give up. (It
  // counts places that only call or end, too, which the oracle drops.)
  TokenSet ambiguous;
};

Trials TryAll(const NaiveAcceptor& naive, const TokenTrie& trie) {
  Trials trials{TokenSet(trie.vocab_size()), TokenSet(trie.vocab_size())};
  for (const TokenId token : trie.TokensBelow(0)) {
    NaiveAcceptor trial = naive;
    bool accepted = true;
    for (const char& byte : trie.BytesOf(token)) {
      accepted = accepted && trial.Accept({&byte, 1});
      if (trial.num_places() > kMostNaivePlaces) trials.ambiguous.Add(token);
    }
    if (accepted) trials.allowed.Add(token);
  }
  return trials;
}

bool TakesAnyByte(const NaiveAcceptor& naive) {
  for (int byte = 0; byte < 256; ++byte) {
    NaiveAcceptor trial = naive;
    if (trial.Accept(std::string(1, static_cast<char>(byte)))) return true;
  }
  return false;
}

std::vector<TokenId> All(const TokenSet& set) {
  std::vector<TokenId> all;
  set.ForEach([&](TokenId token) { all.push_back(token); });
  return all;
}

// Walks over allowed tokens, and tries some that are not. Returns the number of steps.
int Walk(const TokenTrie& trie, Pair pair, std::mt19937* random) {
  for (int step = 0; step < kMostTokens; ++step) {
    if (pair.naive.num_places() > kMostNaivePlaces) return step;
    const Trials trials = TryAll(pair.naive, trie);
    TokenSet allowed(trie.vocab_size());
    allowed.Add(TokenId{0});  // overwritten
    pair.matcher.FindAllowed(&allowed);
    std::vector<TokenId> expected = All(trials.allowed);
    std::erase_if(expected, [&](TokenId token) {
      return trials.ambiguous.Has(token) && !allowed.Has(token);
    });
    EXPECT_EQ(All(allowed), expected) << "step " << step;
    EXPECT_EQ(pair.matcher.CanEnd(), pair.naive.CanEnd());
    EXPECT_EQ(pair.matcher.MustEnd(), pair.naive.CanEnd() && !TakesAnyByte(pair.naive));
    EXPECT_FALSE(pair.matcher.is_overrun());
    if (::testing::Test::HasFailure()) return step;
    for (int trial = 0; trial < 4; ++trial) {  // stays where it is
      const TokenId token{static_cast<int32_t>((*random)() % trie.vocab_size())};
      if (trials.allowed.Has(token) || trials.ambiguous.Has(token)) continue;
      EXPECT_FALSE(pair.matcher.AcceptToken(token));
    }
    if (expected.empty()) return step;
    const TokenId next = expected[(*random)() % expected.size()];
    EXPECT_TRUE(pair.naive.Accept(trie.BytesOf(next)));
    const bool accepted = pair.matcher.AcceptToken(next);
    if (pair.matcher.is_overrun() && trials.ambiguous.Has(next)) return step;
    EXPECT_TRUE(accepted);
  }
  return kMostTokens;
}

// Grammars and vocabularies as they come; masks that stay, that are let go all the time, and that
// several grammars use.
TEST(GrammarMatcherRandomTest, AllowsTheTokensThatTheGrammarTakes) {
  std::mt19937 random(RandomSeed(1));
  for (int steps = 0; steps < RandomSteps();) {
    const std::vector<std::string> pieces = RandomVocabulary(&random);
    const TokenTrie trie(FakeTokenizer(pieces), pieces.size() + random() % 70, {});
    const auto masks = std::make_shared<MaskStore>(&trie, random() % 3 * 1000,
                                                   random() % 2 * MaskStore::kManyNodes);
    std::vector<std::shared_ptr<const Grammar>> grammars;
    for (int i = 0; i < 3; ++i) {
      grammars.push_back(std::make_shared<const Grammar>(RandomGrammar(&random)));
    }
    for (int walk = 0; walk < 12; ++walk) {
      steps += 1 + Walk(trie, Pair(grammars[random() % 3], masks), &random);
      if (HasFailure()) return;
    }
  }
}

// Several threads walk through several grammars over one store, which has room for some masks only.
TEST(GrammarMatcherRandomTest, AllowsTheSameInSeveralThreads) {
  std::mt19937 random(RandomSeed(2));
  for (int round = 0; round < std::max(2, RandomSteps() / 1000); ++round) {
    const std::vector<std::string> pieces = RandomVocabulary(&random);
    const TokenTrie trie(FakeTokenizer(pieces), pieces.size(), {});
    const auto masks = std::make_shared<MaskStore>(&trie, 2000, /*many_nodes=*/random() % 3);
    std::vector<std::shared_ptr<const Grammar>> grammars;
    for (int i = 0; i < 2; ++i) {
      grammars.push_back(std::make_shared<const Grammar>(RandomGrammar(&random)));
    }
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, seed = random() + t] {
        std::mt19937 own(seed);
        for (int walk = 0; walk < 20; ++walk) {
          Walk(trie, Pair(grammars[own() % grammars.size()], masks), &own);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(masks->memory_bytes(), 2000u);
  }
}

}  // namespace
}  // namespace refrain::engine
