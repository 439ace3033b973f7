#ifndef REFRAIN_ENGINE_TEXT_JINJA_FORMATTED_TEXT_H_
#define REFRAIN_ENGINE_TEXT_JINJA_FORMATTED_TEXT_H_

#include <string>
#include <utility>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// What is made of a format and its arguments, piece by piece, with the size of the whole charged
// and checked.
class FormattedText {
 public:
  explicit FormattedText(Budget* budget) : budget_(budget) {}

  void Append(const Text& text) {
    budget_->Bytes(text.size());
    if (out_.size() + text.size() > Budget::kMaxStringBytes) {
      budget_->String(out_.size() + text.size());
    }
    out_.Append(text);
  }
  Text Take() { return std::move(out_); }

 private:
  Budget* budget_;
  Text out_;
};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_FORMATTED_TEXT_H_
