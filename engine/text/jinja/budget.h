#ifndef REFRAIN_ENGINE_TEXT_JINJA_BUDGET_H_
#define REFRAIN_ENGINE_TEXT_JINJA_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/text/encode_pace.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// What one rendering may cost, so that a hostile template, or a hostile request to a careless one,
// ends in an error. Time is bounded by the steps and by the bytes that operations read or write.
// Throws TemplateError when something is used up, and RenderingStopped when the pace says so.
class Budget {
 public:
  static constexpr int64_t kMaxSteps = 5'000'000;         // evaluated nodes
  static constexpr int64_t kMaxBytes = int64_t{1} << 29;  // read or written by operations
  static constexpr size_t kMaxStringBytes = 1 << 26;      // of one string, the output included
  static constexpr size_t kMaxListItems = 1 << 20;
  static constexpr int kMaxRecursion = 600;  // interpreter frames
  static constexpr int kMaxValueDepth = 100;

  explicit Budget(EncodePace* pace = nullptr) : pace_(pace) {}  // outlives it; may be null

  void Step() {
    if (++steps_ > kMaxSteps) Fail("takes more steps", kMaxSteps);
    if (pace_ == nullptr) return;
    pace_->Did(kStepBytes);
    if (pace_->stopped()) throw RenderingStopped();
  }

  void Bytes(size_t bytes) {
    bytes_ += static_cast<int64_t>(bytes < kMaxBytes ? bytes : kMaxBytes);
    if (bytes_ > kMaxBytes) Fail("moves more bytes", kMaxBytes);
  }

  // For a string of that size about to be made.
  void String(size_t bytes) {
    if (bytes > kMaxStringBytes) Fail("makes a string of more bytes", kMaxStringBytes, bytes);
    Bytes(bytes + 16);
  }

  void List(size_t items) {
    if (items > kMaxListItems) Fail("makes a list of more items", kMaxListItems, items);
    Bytes(items * sizeof(Value));
  }

  // For a map's key about to be hashed and compared.
  void Key(const Value& key) {
    if (key.is_string()) Bytes(2 * key.AsText().size());
  }

  // For a copy of a map, whose index is made anew.
  void MapCopy(const Map& map) {
    List(2 * map.size());
    for (const Map::Entry& entry : map.entries()) Key(entry.key);
  }

  const Value& Depth(const Value& value) const {
    if (value.depth() > kMaxValueDepth) Fail("nests values deeper", kMaxValueDepth, value.depth());
    return value;
  }

  // One frame of the interpreter, for as long as it lives.
  class Frame {
   public:
    explicit Frame(Budget* budget) : budget_(budget) {
      budget_->Step();
      if (++budget_->recursion_ > kMaxRecursion) {
        --budget_->recursion_;
        Fail("recurses deeper", kMaxRecursion);
      }
    }
    ~Frame() { --budget_->recursion_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Budget* budget_;
  };

 private:
  // `asked` is 0 where it is the limit and one more.
  [[noreturn]] static void Fail(const char* what, int64_t limit, uint64_t asked = 0) {
    std::string message =
        std::string("the template ") + what + " than the limit of " + std::to_string(limit);
    if (asked > 0) message += ": " + std::to_string(asked);
    throw TemplateError(message);
  }

  static constexpr size_t kStepBytes = 1;  // of a text that take about as long to tokenize

  EncodePace* pace_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int recursion_ = 0;
};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_BUDGET_H_
