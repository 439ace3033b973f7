// Times the work of a grammar on each token: FindAllowed, then AcceptToken, over JSON documents
// with the vocabulary of SmolLM2 and with a synthetic one of 128,256 tokens.
//
// Checks before it times: every token of a document is allowed at its place, and at some places the
// allowed tokens are those that a copy of the matcher accepts, one by one. The first round makes
// the masks and is told apart, from none and as in the server from those that were made before the
// first token (WarmMasks); others find them. It runs on one thread and its caches are warm:
// what it cannot show is what the model's weights leave of them between two tokens.
//
//   grammar_bench [ROUNDS] [PART]    only documents whose names hold the part
//
// Exit status: 0; 1 when a median, a p99 or a first mask is over its limit, 2 for a wrong
// option, 3 for a wrong result.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar_matcher.h"
#include "engine/grammar/mask_store.h"
#include "engine/grammar/token_trie.h"
#include "engine/grammar/warm_masks.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/fake_tokenizer.h"
#include "tools/bench/grammar_workload.h"

namespace refrain::bench {
namespace {

using engine::GrammarMatcher;
using engine::MaskStore;
using engine::TokenSet;
using engine::TokenTrie;
using kvcache::TokenId;

constexpr size_t kMaskBytes = size_t{64} << 20;
constexpr size_t kCheckedPlaces = 12;  // of a document
constexpr int kFewRounds = 7;
constexpr double kMedianLimitUs = 30, kP99LimitUs = 200, kFirstLimitMs = 3;

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "grammar_bench: wrong result: %s\n", what);
  std::exit(3);
}

double NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

struct Run {
  std::vector<double> find_us, accept_us, both_us;  // of each token
  size_t most_places = 0;
};

void Follow(const GrammarDocument& document, const std::vector<TokenId>& tokens,
            const std::shared_ptr<MaskStore>& masks, Run* run) {
  GrammarMatcher matcher(document.grammar, masks);
  TokenSet allowed(masks->trie().vocab_size());
  for (const TokenId token : tokens) {
    const double begin = NowUs();
    matcher.FindAllowed(&allowed);
    const double found = NowUs();
    const bool is_right = allowed.Has(token) && matcher.AcceptToken(token);
    const double accepted = NowUs();
    Check(is_right, document.name.c_str());
    run->find_us.push_back(found - begin);
    run->accept_us.push_back(accepted - found);
    run->both_us.push_back(accepted - begin);
    run->most_places = std::max(run->most_places, matcher.num_places());
  }
  Check(matcher.CanEnd(), document.name.c_str());
}

void CheckAllowed(const GrammarDocument& document, const std::vector<TokenId>& tokens,
                  const std::shared_ptr<MaskStore>& masks) {
  GrammarMatcher matcher(document.grammar, masks);
  TokenSet allowed(masks->trie().vocab_size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i % (tokens.size() / kCheckedPlaces + 1) == 0) {
      matcher.FindAllowed(&allowed);
      for (const TokenId token : masks->trie().TokensBelow(0)) {
        GrammarMatcher trial = matcher;
        Check(trial.AcceptToken(token) == allowed.Has(token), "allowed tokens");
      }
    }
    Check(matcher.AcceptToken(tokens[i]), document.name.c_str());
  }
}

// FindAllowed of each token with masks that were made before, with none, and with those of
// WarmMasks, which takes `warming_us`: the least of a few rounds, as what else the machine does
// delays some.
struct LeastFind {
  std::vector<double> known_us, first_us, warmed_us;
  double warming_us = std::numeric_limits<double>::infinity();
};

void TakeLeast(const std::vector<double>& run_us, std::vector<double>* least_us) {
  for (size_t i = 0; i < run_us.size(); ++i) (*least_us)[i] = std::min((*least_us)[i], run_us[i]);
}

LeastFind MeasureLeastFind(const GrammarDocument& document, const std::vector<TokenId>& tokens,
                           const std::shared_ptr<MaskStore>& known) {
  const std::vector<double> never(tokens.size(), std::numeric_limits<double>::infinity());
  LeastFind least{never, never, never};
  for (int round = 0; round < kFewRounds; ++round) {
    Run first_run, warmed_run, known_run;
    Follow(document, tokens, std::make_shared<MaskStore>(&known->trie(), kMaskBytes), &first_run);
    const auto warmed = std::make_shared<MaskStore>(&known->trie(), kMaskBytes);
    const double begin = NowUs();
    WarmMasks(*document.grammar, *warmed);
    least.warming_us = std::min(least.warming_us, NowUs() - begin);
    Follow(document, tokens, warmed, &warmed_run);
    Follow(document, tokens, known, &known_run);
    TakeLeast(first_run.find_us, &least.first_us);
    TakeLeast(warmed_run.find_us, &least.warmed_us);
    TakeLeast(known_run.find_us, &least.known_us);
  }
  return least;
}

// Whether the limits were kept.
bool Measure(const GrammarDocument& document, const std::vector<TokenId>& tokens,
             const TokenTrie& trie, int rounds) {
  Check(!tokens.empty(), "no tokens");
  const auto masks = std::make_shared<MaskStore>(&trie, kMaskBytes);
  CheckAllowed(document, tokens, masks);
  const LeastFind least = MeasureLeastFind(document, tokens, masks);
  const double masks_ms = (std::accumulate(least.first_us.begin(), least.first_us.end(), 0.0) -
                           std::accumulate(least.known_us.begin(), least.known_us.end(), 0.0)) /
                          1e3;
  const auto slowest_ms = [](const std::vector<double>& us) {
    return *std::max_element(us.begin(), us.end()) / 1e3;
  };
  Run run;
  for (int round = 0; round < rounds; ++round) Follow(document, tokens, masks, &run);
  const double median = Quantile(run.both_us, 0.5), p99 = Quantile(run.both_us, 0.99);
  std::printf("| %s | %zu | %zu | %.1f | %.1f | %.1f | %.1f | %.1f | %.2f | %.1f | %.2f | %.0f |\n",
              document.name.c_str(), tokens.size(), run.most_places, Quantile(run.find_us, 0.5),
              Quantile(run.accept_us, 0.5), median, p99, masks_ms, slowest_ms(least.first_us),
              least.warming_us / 1e3, slowest_ms(least.warmed_us),
              static_cast<double>(masks->memory_bytes()) / 1024);
  return median < kMedianLimitUs && p99 < kP99LimitUs &&
         slowest_ms(least.warmed_us) < kFirstLimitMs;
}

int Main(int rounds, const std::string& part) {
  const std::unique_ptr<engine::Tokenizer> tokenizer = engine::SmolLm2Tokenizer();
  Check(tokenizer != nullptr, "no tokenizer");
  const TokenTrie small(*tokenizer, tokenizer->vocab_size(), {});
  std::vector<std::string> pieces;
  for (size_t i = 0; i < tokenizer->vocab_size(); ++i) {
    const std::string_view bytes = small.BytesOf(TokenId{static_cast<int32_t>(i)});
    if (!bytes.empty()) pieces.emplace_back(bytes);
  }
  pieces = LargeVocabulary(std::move(pieces));
  pieces.emplace_back("</s>");
  const TokenTrie large(testing::FakeTokenizer(pieces), pieces.size(), {});
  std::printf("grammar_bench %d '%s'\n", rounds, part.c_str());
  bool kept = true;
  for (const TokenTrie* trie : {&small, &large}) {
    std::printf(
        "\n%zu tokens, a trie of %zu nodes\n\n"
        "| document | tokens | places | find us | accept us | both us | p99 us | "
        "all masks ms | slowest token ms | made before, ms | slowest token then, ms | masks KiB "
        "|\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        trie->vocab_size(), trie->nodes().size());
    for (const GrammarDocument& document : GrammarDocuments()) {
      if (document.name.find(part) == std::string::npos) continue;
      std::vector<TokenId> tokens = LongestTokens(*trie, document.text);
      if (trie == &small) {
        auto encoded = tokenizer->Encode(document.text, {});
        Check(encoded.ok(), "not encoded");
        tokens = *std::move(encoded);
      }
      kept &= Measure(document, tokens, *trie, rounds);
    }
  }
  if (!kept) {
    std::printf(
        "MISSED: median under %.0f us, p99 under %.0f us, a warmed token's masks under %.0f ms\n",
        kMedianLimitUs, kP99LimitUs, kFirstLimitMs);
  }
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  if (rounds >= 1 && argc <= 3) return refrain::bench::Main(rounds, argc > 2 ? argv[2] : "");
  std::fprintf(stderr, "grammar_bench: ROUNDS has to be a number above 0\n");
  return 2;
}
