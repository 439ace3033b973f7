#include "tools/loadgen/shared_prompts.h"

#include <random>

#include "absl/strings/str_cat.h"

namespace refrain::loadgen {
namespace {

// Kinds of seeds: a prompt must not repeat another's tokens.
enum SeedKind : uint64_t { kSharedSeed = 1, kOwnSeed = 2, kSuffixSeed = 3 };

class SharedPrompts final : public Workload {
 public:
  explicit SharedPrompts(const SharedPromptsOptions& options)
      : options_(options), random_(MixSeed(options.seed, 0)) {}

  absl::StatusOr<std::optional<Session>> Next() override {
    Session session;
    const uint64_t number = next_++;
    for (int32_t turn = 0; turn < options_.turns; ++turn) {
      Turn& made = session.turns.emplace_back();
      made.output_tokens = options_.output_tokens;
      if (turn == 0) {
        AppendSynthetic(options_.form, PrefixSeed(number), options_.shared_tokens, options_.range,
                        "system", &made);
      } else {
        made.think_s = options_.think_s;
      }
      AppendSynthetic(options_.form, Seed(kSuffixSeed, number * 4096 + static_cast<uint64_t>(turn)),
                      options_.unique_tokens, options_.range, "user", &made);
    }
    return session;
  }

 private:
  uint64_t Seed(SeedKind kind, uint64_t number) const {
    return MixSeed(MixSeed(options_.seed, kind), number);
  }

  uint64_t PrefixSeed(uint64_t number) {
    if (std::uniform_real_distribution<double>(0, 1)(random_) >= options_.shared_share) {
      return Seed(kOwnSeed, number);
    }
    std::uniform_int_distribution<int32_t> which(0, options_.prompts - 1);
    return Seed(kSharedSeed, static_cast<uint64_t>(which(random_)));
  }

  const SharedPromptsOptions options_;
  std::mt19937_64 random_;
  uint64_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> MakeSharedPrompts(const SharedPromptsOptions& options) {
  const auto refuse = [](const char* option, auto value, const char* valid) {
    return absl::InvalidArgumentError(absl::StrCat(option, " is ", value, ", must be ", valid));
  };
  if (!(options.shared_share >= 0 && options.shared_share <= 1)) {
    return refuse("--shared-share", options.shared_share, "0 to 1");
  }
  if (options.prompts < 1) return refuse("--shared-prompts", options.prompts, "1 or more");
  if (options.shared_tokens < 0)
    return refuse("--shared-tokens", options.shared_tokens, "0 or more");
  if (options.unique_tokens < 1)
    return refuse("--unique-tokens", options.unique_tokens, "1 or more");
  if (options.output_tokens < 1)
    return refuse("--output-tokens", options.output_tokens, "1 or more");
  if (options.turns < 1 || options.turns > 4096) {
    return refuse("--turns", options.turns, "1 to 4096");
  }
  if (options.range.low < 0 || options.range.high <= options.range.low) {
    return refuse("--token-range", absl::StrCat(options.range.low, ":", options.range.high),
                  "LOW:HIGH with 0 <= LOW < HIGH");
  }
  return std::make_unique<SharedPrompts>(options);
}

}  // namespace refrain::loadgen
