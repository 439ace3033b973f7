#include "engine/grammar/output_constrainer.h"

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/grammar_matcher.h"
#include "engine/grammar/warm_masks.h"
#include "engine/retry_after.h"

namespace refrain::engine {
namespace {

// Texts with their lengths in front, so that no two formats have the same key.
void AddText(std::string_view text, std::string* key) {
  key->append(std::to_string(text.size()));
  key->push_back(':');
  key->append(text);
}

void AddCalls(const OutputFormat::ToolCalls& calls, ToolFormat tools, std::string* key) {
  key->push_back(calls.several ? '1' : '0');
  key->push_back(static_cast<char>('0' + static_cast<int>(tools)));
  for (const auto& tool : calls.tools) {
    AddText(tool.name, key);
    AddText(tool.parameters, key);
    key->push_back(tool.is_strict ? '1' : '0');
  }
}

std::string KeyOf(const OutputFormat& format, const OutputPlace& place) {
  std::string key;
  key.reserve(format.bytes() + 64);
  key.push_back(static_cast<char>('0' + format.form.index()));
  key.push_back(static_cast<char>('0' + static_cast<int>(place.reasoning.place)));
  key.push_back(static_cast<char>('0' + place.reasoning.close_bytes));
  std::visit(
      [&](const auto& form) {
        using Form = std::decay_t<decltype(form)>;
        if constexpr (std::is_same_v<Form, OutputFormat::JsonSchema>) {
          AddText(form.schema, &key);
        } else if constexpr (std::is_same_v<Form, OutputFormat::Regex>) {
          AddText(form.pattern, &key);
        } else if constexpr (std::is_same_v<Form, OutputFormat::Ebnf>) {
          AddText(form.grammar, &key);
        } else if constexpr (std::is_same_v<Form, OutputFormat::Choice>) {
          for (const std::string& text : form.texts) AddText(text, &key);
        } else if constexpr (std::is_same_v<Form, OutputFormat::ToolCalls>) {
          AddCalls(form, place.tools, &key);
        }
      },
      format.form);
  if (format.or_calls.has_value()) {
    key.push_back('|');
    AddCalls(*format.or_calls, place.tools, &key);
  }
  return key;
}

// Tags that are control tokens in some vocabularies.
std::vector<kvcache::TokenId> TagTokens(const Tokenizer& tokenizer) {
  std::vector<kvcache::TokenId> tags;
  for (const std::string_view tag : {kThinkOpen, kThinkClose, std::string_view("<tool_call>"),
                                     std::string_view("</tool_call>")}) {
    const auto token = tokenizer.FindSpecial(tag);
    if (token.has_value() && tokenizer.IsControl(*token)) tags.push_back(*token);
  }
  return tags;
}

// A store that has its trie with it.
struct TrieAndMasks {
  TrieAndMasks(const Tokenizer& tokenizer, size_t vocab_size, size_t most_bytes)
      : trie(tokenizer, vocab_size, TagTokens(tokenizer)), masks(&trie, most_bytes) {}
  TokenTrie trie;
  MaskStore masks;
};

}  // namespace

std::optional<OutputConstrainer::Made> OutputConstrainer::FindOrNone(const OutputFormat& format,
                                                                     const OutputPlace& place) {
  const std::string key = KeyOf(format, place);
  std::shared_ptr<const Grammar> grammar;
  {
    const MutexLock lock(mutex_);
    grammar = FindKept(key);
  }
  if (grammar == nullptr) return std::nullopt;
  return Made{std::move(grammar), Masks()};  // which were there before it was kept
}

absl::StatusOr<OutputConstrainer::Made> OutputConstrainer::Make(const OutputFormat& format,
                                                                const OutputPlace& place,
                                                                const std::string& tenant,
                                                                EncodePace* pace) {
  // Another prompt of the same call may have made it meanwhile.
  if (std::optional<Made> found = FindOrNone(format, place)) return *std::move(found);
  if (const std::optional<double> seconds = shares_->SecondsUntilShare(tenant)) {
    return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                              format.field, ": the forms of the requests at hand take ",
                              shares_->bytes() >> 20, " of ", shares_->most_bytes() >> 20,
                              " MiB, and this key has its share of them: try again later")),
                          *seconds);
  }
  absl::StatusOr<Grammar> made = MakeOutputGrammar(format, place, pace);
  if (!made.ok()) return made.status();
  const size_t bytes = made->memory_bytes();
  // What may find no memory comes before the share is taken, or gives it back.
  // Moved without memory, as a name that is const could not be.
  auto give_back = [shares = shares_, tenant = std::string(tenant), bytes](const Grammar* done) {
    delete done;
    shares->Subtract(tenant, bytes);
  };
  auto owned = std::make_unique<const Grammar>(*std::move(made));
  shares_->Add(tenant, bytes);
  const std::shared_ptr<const Grammar> grammar(owned.release(), std::move(give_back));
  std::shared_ptr<MaskStore> masks = Masks();
  const GrammarMatcher start(grammar, masks);
  if (start.MustEnd()) {
    // Each step chooses a token, so that some text would come.
    return absl::InvalidArgumentError(
        absl::StrCat(format.field, ": the empty text is the only one of this form"));
  }
  if (start.is_overrun()) {
    return absl::InvalidArgumentError(absl::StrCat(format.field,
                                                   ": the output may begin in more than ",
                                                   GrammarMatcher::kMostPlaces, " ways at once"));
  }
  std::string key = KeyOf(format, place);
  std::list<Kept> dropped;  // freed outside of the lock
  {
    const MutexLock lock(mutex_);
    const size_t kept_bytes = bytes + key.size();
    Keep({std::move(key), grammar, kept_bytes}, &dropped);
  }
  WarmMasks(*grammar, *masks, pace);
  return Made{grammar, std::move(masks)};
}

std::shared_ptr<MaskStore> OutputConstrainer::Masks() {
  const MutexLock lock(masks_mutex_);
  if (masks_ == nullptr) {
    const auto both = std::make_shared<TrieAndMasks>(*tokenizer_, vocab_size_, kMostMaskBytes);
    masks_ = std::shared_ptr<MaskStore>(both, &both->masks);
  }
  return masks_;
}

std::shared_ptr<const Grammar> OutputConstrainer::FindKept(const std::string& key) {
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->key != key) continue;
    kept_.splice(kept_.begin(), kept_, kept);
    return kept->grammar;
  }
  return nullptr;
}

void OutputConstrainer::Keep(Kept kept, std::list<Kept>* dropped) {
  if (kept.bytes > kKeptBytes || FindKept(kept.key) != nullptr) return;
  kept_.push_front(std::move(kept));  // first: it may find no memory
  kept_bytes_ += kept_.front().bytes;
  while (kept_.size() > kKeptGrammars || kept_bytes_ > kKeptBytes) {
    kept_bytes_ -= kept_.back().bytes;
    dropped->splice(dropped->end(), kept_, std::prev(kept_.end()));
  }
}

}  // namespace refrain::engine
