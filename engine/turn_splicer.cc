#include "engine/turn_splicer.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/turn_speller.h"

namespace refrain::engine {
namespace {

// How far before a message's content an answer to the prompt may begin: what a template puts there
// that the model generated itself (a space, the opening of a tool call).
constexpr size_t kLeadBytes = 32;
// Places at which the ids before them turned out to be other than they were then. What follows
// cannot meet that turn's KV either, so a few are enough.
constexpr int kMaxMisses = 4;

using HashState = std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)>;

// The bytes [begin_byte, end_byte) of a text, on their own.
absl::StatusOr<std::vector<TokenId>> EncodePart(const Tokenizer& tokenizer, std::string_view text,
                                                const TextSpan& part,
                                                const EncodeOptions& options) {
  std::vector<TextSpan> plain;
  for (const TextSpan& span : options.plain_spans) {
    const size_t begin = std::max(span.begin_byte, part.begin_byte);
    const size_t end = std::min(span.end_byte, part.end_byte);
    if (begin < end) plain.push_back({begin - part.begin_byte, end - part.begin_byte});
  }
  EncodeOptions of_part = options;
  of_part.plain_spans = plain;
  of_part.continues = part.begin_byte > 0;
  auto ids =
      tokenizer.Encode(text.substr(part.begin_byte, part.end_byte - part.begin_byte), of_part);
  if (ids.ok() || part.begin_byte == 0) return ids;
  return absl::Status(ids.status().code(), absl::StrCat(std::string(ids.status().message()),
                                                        ", counted from byte ", part.begin_byte));
}

// Where the control tokens at or behind `at_byte` begin; none inside of one.
std::optional<size_t> NextControlToken(const std::vector<ControlToken>& controls, size_t at_byte,
                                       size_t text_bytes) {
  const auto next = std::partition_point(
      controls.begin(), controls.end(),
      [at_byte](const ControlToken& token) { return token.span.end_byte <= at_byte; });
  if (next == controls.end()) return text_bytes;
  if (next->span.begin_byte < at_byte) return std::nullopt;
  return next->span.begin_byte;
}

}  // namespace

absl::StatusOr<SplicedPrompt> TurnSplicer::Encode(std::string_view text,
                                                  const EncodeOptions& options,
                                                  const std::string& scope) const {
  SplicedPrompt out;
  out.key.scope = scope;
  const std::vector<Place> places = FindPlaces(text, options.plain_spans, &out.key);
  bool spliced = false;
  if (!places.empty()) {
    absl::StatusOr<bool> done = Splice(text, options, places, &out);
    if (!done.ok()) return done.status();
    spliced = *done;
  }
  if (!spliced) {
    absl::StatusOr<std::vector<TokenId>> ids = tokenizer_->Encode(text, options);
    if (!ids.ok()) return ids.status();
    out.ids = *std::move(ids);
    out.reused_tokens = 0;
  }
  out.key.ids = DigestOf(out.ids);
  return out;
}

std::vector<TurnSplicer::Place> TurnSplicer::FindPlaces(std::string_view text,
                                                        std::span<const TextSpan> content,
                                                        TurnKey* key) const {
  const HashState state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  size_t hashed = 0;
  const auto digest_of_first = [&](size_t size_bytes) {
    XXH3_128bits_update(state.get(), text.data() + hashed, size_bytes - hashed);
    hashed = size_bytes;
    const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
    return Digest{hash.low64, hash.high64};
  };
  std::vector<TurnMemory::Window> windows;
  for (const TextSpan& span : content) {
    windows.push_back({span.begin_byte - std::min(span.begin_byte, kLeadBytes), span.end_byte});
  }
  std::vector<Place> places;
  for (const size_t size : memory_->PromptSizes(key->scope, text, windows)) {
    if (size == text.size()) break;
    std::vector<TurnMemory::Turn> turns = memory_->Find(key->scope, digest_of_first(size));
    if (!turns.empty()) places.push_back({size, std::move(turns)});
  }
  key->end = TextEndOf(text);
  key->text = digest_of_first(text.size());
  return places;
}

absl::StatusOr<bool> TurnSplicer::Splice(std::string_view text, const EncodeOptions& options,
                                         const std::vector<Place>& places,
                                         SplicedPrompt* out) const {
  const std::vector<ControlToken> controls = tokenizer_->FindControlTokens(text, options);
  size_t at_byte = 0;
  int misses = 0;
  const auto encode_up_to = [&](size_t end_byte) -> absl::Status {
    if (end_byte == at_byte) return absl::OkStatus();
    const auto part = EncodePart(*tokenizer_, text, {at_byte, end_byte}, options);
    if (part.ok()) out->ids.insert(out->ids.end(), part->begin(), part->end());
    return part.status();
  };
  for (const Place& place : places) {
    if (place.at_byte < at_byte || misses == kMaxMisses) continue;
    const std::optional<size_t> end = NextControlToken(controls, place.at_byte, text.size());
    if (!end.has_value()) continue;
    const std::string_view behind = text.substr(place.at_byte, *end - place.at_byte);
    TurnSpeller speller(tokenizer_, behind);
    std::vector<TurnSpeller::Extent> extents;
    for (const auto& turn : place.turns) {
      extents.push_back(speller.SpellWholeWords(*turn.generated));
    }
    if (std::ranges::none_of(extents, [](const auto& extent) { return extent.tokens > 0; })) {
      continue;
    }
    std::vector<TokenId>& ids = out->ids;
    const size_t ids_before = ids.size();
    absl::Status status = encode_up_to(place.at_byte);
    if (absl::IsFailedPrecondition(status)) return false;
    if (!status.ok()) return status;
    const Digest digest = DigestOf(ids);
    // The longest; of equal ones the oldest, which earlier turns of this conversation took too.
    size_t best = place.turns.size();
    for (size_t i = 0; i < place.turns.size(); ++i) {
      if (place.turns[i].prompt_ids != digest || extents[i].tokens == 0) continue;
      if (best == place.turns.size() || extents[i].bytes > extents[best].bytes) best = i;
    }
    if (best == place.turns.size()) {
      ids.resize(ids_before);
      ++misses;
      continue;
    }
    const std::vector<TokenId>& generated = *place.turns[best].generated;
    const auto count = static_cast<std::ptrdiff_t>(extents[best].tokens);
    ids.insert(ids.end(), generated.begin(), generated.begin() + count);
    out->reused_tokens += extents[best].tokens;
    at_byte = place.at_byte + extents[best].bytes;
    memory_->MarkUsed(place.turns[best]);
  }
  if (at_byte == 0) return false;
  absl::Status status = encode_up_to(text.size());
  if (absl::IsFailedPrecondition(status)) return false;
  if (!status.ok()) return status;
  return HasControlTokens(out->ids, controls);
}

// Tokens that stand for themselves always may overlap control tokens, and other borders uncover
// other ones.
bool TurnSplicer::HasControlTokens(std::span<const TokenId> ids,
                                   const std::vector<ControlToken>& wanted) const {
  auto next = wanted.begin();
  for (const TokenId id : ids) {
    if (!tokenizer_->IsReserved(id)) continue;
    if (next == wanted.end() || next->id != id) return false;
    ++next;
  }
  return next == wanted.end();
}

}  // namespace refrain::engine
