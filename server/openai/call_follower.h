#ifndef REFRAIN_SERVER_OPENAI_CALL_FOLLOWER_H_
#define REFRAIN_SERVER_OPENAI_CALL_FOLLOWER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace refrain::server::openai {

// Follows the text of one JSON object that may be a tool call, while it is being written: where it
// ends, and, as soon as that is sure, the name of the call and where the object of its arguments
// begins and ends. It looks at the members of the outermost object only; whether what is in them is
// JSON is for others to say.
//
//   {"name": "weather", "arguments": {"city": "Paris"}}
//                                   ^ streams() from here on          ^ what Follow returns
//
// Models forget braces: an object that is still open where `closing_tag` stands, outside of its
// strings, ends in front of it and is not whole. One that was told of already and then breaks may
// end, too, so that what a model says behind it is found (`ends_where_broken`): behind its last
// whole member, its arguments among them, since within members nothing breaks it.
//
// One thread. Cannot fail. Time is linear in the text.
class CallFollower {
 public:
  struct Options {
    std::string_view closing_tag;  // empty: there is none. Outlives this.
    bool ends_where_broken = false;
  };

  explicit CallFollower(Options options) : options_(options) {}

  // `object` is what there is of the text from its opening brace on, always more of the same. The
  // object's end once it is there.
  std::optional<size_t> Follow(std::string_view object);

  // Behind its end, unless it is broken there: its braces match.
  bool whole() const { return braces_ <= 0; }
  // The name and the opening brace of the arguments are there, and up to them all was well formed:
  // whatever comes, this is a call, of this name.
  bool streams() const { return streams_; }
  const std::string& name() const { return *name_; }  // with streams()
  // The last brace of the arguments is there.
  bool closed_arguments() const { return arguments_end_.has_value(); }
  // The part of `object`, as far as it was followed, that is the object of the arguments.
  std::string_view Arguments(std::string_view object) const;

 private:
  enum class Place : uint8_t { kKey, kColon, kValue, kScalar, kComma };

  // One character outside of strings.
  void Take(char c);
  void TakeOutermost(char c);
  // A string of the outermost object, quotes included.
  void EndString(std::string_view text);
  // With its last character.
  void EndMember();
  bool outermost() const { return braces_ == 1 && brackets_ == 0; }

  Options options_;
  size_t at_ = 0;  // so much of the object has been looked at
  std::optional<size_t> end_;
  int braces_ = 0;
  int brackets_ = 0;  // in the outermost object
  bool in_string_ = false;
  bool escaped_ = false;
  size_t string_begin_ = 0;
  Place place_ = Place::kKey;
  bool orderly_ = true;  // what stands between the outermost members is JSON
  // Decided once: a client may have been told, or not, by the piece that was cut here.
  bool streams_ = false;
  std::string key_;
  std::optional<std::string> name_;
  std::optional<size_t> arguments_begin_;
  std::optional<size_t> arguments_end_;
  size_t members_end_ = 0;  // of the whole ones
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_CALL_FOLLOWER_H_
