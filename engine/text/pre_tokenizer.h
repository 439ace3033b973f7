#ifndef REFRAIN_ENGINE_TEXT_PRE_TOKENIZER_H_
#define REFRAIN_ENGINE_TEXT_PRE_TOKENIZER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace refrain::engine {

// Cuts text into the pieces inside of which byte-level BPE may merge.
//
// Patterns run one after the other: each cuts every piece of the one before into its matches and
// the gaps between them; a match of nothing cuts where it is. Immutable; any thread. Split fails
// when a pattern exceeds its matching limit on the text; the named pre-tokenizers, which are
// linear, have none: INVALID_ARGUMENT with the limit and the byte, for the same text fails again.
class PreTokenizer {
 public:
  // A piece goes through one pattern inside of the other; the longest list known has 6.
  static constexpr size_t kMaxPatterns = 64;
  // The longest pattern known has some 1,200.
  static constexpr size_t kMaxPatternBytes = 64 << 10;

  // By a name of GGUF `tokenizer.ggml.pre`. InvalidArgument lists the names that are known.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> CreateByName(std::string_view name);

  // Patterns as in tokenizer.json (SpellForPcre2). InvalidArgument for one that does not compile or
  // is too long, none, or more than kMaxPatterns.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> CreateFromPatterns(
      std::span<const std::string> patterns);

  // Whether the model of this name takes a piece that is one token as it is.
  static bool IgnoresMergesByName(std::string_view name);

  // The name whose pattern is spelled so in tokenizer.json, or empty.
  static std::string_view NameOfPublishedPattern(std::string_view pattern);

  ~PreTokenizer();

  // `text` is well-formed UTF-8. Calls `visit` with every piece, in order; none is empty. Ends
  // where it returns false.
  absl::Status Split(std::string_view text,
                     absl::FunctionRef<bool(std::string_view piece)> visit) const;

 private:
  class Pattern;
  struct Cutting;

  explicit PreTokenizer(std::vector<std::unique_ptr<Pattern>> patterns);

  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Create(std::span<const std::string> sources,
                                                              uint32_t match_limit);

  // Where it fails, the byte of `text` is in `cutting`.
  absl::Status SplitFrom(size_t stage, std::string_view text, Cutting* cutting) const;

  std::vector<std::unique_ptr<Pattern>> patterns_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_PRE_TOKENIZER_H_
