#ifndef REFRAIN_ENGINE_STOP_CRITERIA_H_
#define REFRAIN_ENGINE_STOP_CRITERIA_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "engine/shared_list.h"
#include "engine/token_stream.h"

namespace refrain::engine {

// Finds one string in a stream of bytes (Knuth, Morris and Pratt, 1977): amortised constant time
// per byte, whatever the string. What it knows of the string it makes as far as the stream has come
// in it, seldom beyond the first bytes: thousands of choices may wait with 64 KiB of strings each.
class StringFinder {
 public:
  // Takes the stream's next byte: whether the string, the same in every call and not empty, ends
  // exactly here.
  bool Next(std::string_view string, char byte) {
    if (matched_ == 0 && string.front() != byte) return false;  // as nearly always
    return Follow(string, byte);
  }
  // How many of the last bytes may yet become part of a match.
  size_t held_bytes() const { return matched_; }

 private:
  bool Follow(std::string_view string, char byte);

  size_t matched_ = 0;  // the longest beginning of the string, not all of it, that ends here
  // Of each beginning that was found: the longest shorter one that it ends with.
  std::vector<uint32_t> borders_;
};

// When the choices of one request end, from its StopParams. Immutable, shared by them. Copies share
// what may be large: the rules of a call's other prompts are copies with their own numbers.
struct StopRules {
  StopRules(const StopParams& params, int32_t max_tokens,
            std::span<const TokenId> end_of_generation);

  int32_t min_tokens;
  int32_t max_tokens;  // the request's, cut to what the context leaves
  bool include_stop_in_output;
  SharedList<TokenId> end_tokens;   // sorted; end of generation, stop_token_ids
  SharedList<TokenId> late_tokens;  // sorted; not chosen before min_tokens tokens were: these, and
                                    // the end of generation where ignore_eos makes it a token
                                    // like others, so that it ends no text too early
  SharedList<std::string> strings;
};

// Follows one choice's tokens: says when it ends, and holds back those whose bytes may become part
// of a stop string. What it releases stays true; on a match the tokens before the string are
// released, the one in which it begins is cut (TokenEvent::shown_bytes), of the others only the ids
// are told (ChoiceEnd::hidden_tokens).
//
// A stop string counts when it ends behind token number min_tokens, as an end token does; the
// earliest end wins, of several the longest string. Engine thread; cannot fail.
class StopCriteria {
 public:
  explicit StopCriteria(std::shared_ptr<const StopRules> rules) : rules_(std::move(rules)) {}

  // Takes the next token and the bytes of text that it is shown as, none for a control token that
  // is hidden; adds what may now be shown to `released`. The choice has ended when an end is
  // returned (`ChoiceEnd::choice` is the event's).
  std::optional<ChoiceEnd> Accept(TokenEvent event, std::string_view bytes,
                                  std::vector<TokenEvent>* released);
  // The choice ends for another reason: gives up what is held.
  void ReleaseAll(std::vector<TokenEvent>* released);

 private:
  struct Held {
    TokenEvent event;
    int64_t begin_byte, end_byte;  // of the choice's output
  };

  // Of the rules' strings the longest that ends with this byte of the output.
  const std::string* FindOrNull(char byte);
  int64_t HeldBytes() const;
  // Shows the output up to `end_byte`; the tokens behind it are `hidden`.
  void ReleaseCut(int64_t end_byte, std::vector<TokenEvent>* released,
                  std::vector<TokenId>* hidden);
  void ReleaseUpTo(int64_t end_byte, std::vector<TokenEvent>* released);
  bool IsEndToken(TokenId token) const;

  std::shared_ptr<const StopRules> rules_;
  std::vector<StringFinder> finders_;  // of the rules' strings, made with the first token
  int32_t accepted_tokens_ = 0;
  int64_t output_bytes_ = 0;
  std::list<Held> held_;  // takes no memory while it is empty
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_STOP_CRITERIA_H_
