#ifndef REFRAIN_ENGINE_TEXT_JINJA_TEMPLATE_H_
#define REFRAIN_ENGINE_TEXT_JINJA_TEMPLATE_H_

#include <ctime>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/encode_pace.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// A parsed template of the jinja2 subset that chat templates are written in, in the environment of
// Hugging Face transformers: trim_blocks, lstrip_blocks, loop controls, `generation` blocks,
// raise_exception, strftime_now, tojson without HTML escapes; undefined values print as nothing.
//
// Not supported, and refused by Parse with line and name: extends, block, include, import, call,
// do, autoescape, recursive loops, argument unpacking, varargs and caller of macros, filters and
// tests outside of filters.cc and value_tests.cc. Fields of `format` with more than a place or a
// name ("{:.2f}") are refused when they are rendered. Integers have 64 bits; those of JSON from
// 2^63 to 2^64 - 1 are computed with as floats. Values never change: there is no list.append.
// Operators escape what they add to text that `safe` or `escape` made, as markupsafe does.
//
// Cost is bounded (budget.h): nesting, steps, bytes, recursion. Immutable after Parse; any number
// of threads may render at once. Render fails with the template's own raise_exception message or
// with what Python would raise.
class Template {
 public:
  static absl::StatusOr<std::unique_ptr<Template>> Parse(std::string_view source);

  // `variables` is a map. `now` is what strftime_now shows. The marks of the text tell which bytes
  // came out of values marked as from a request. `pace` may hold it up or stop it, CANCELLED, and
  // be null.
  absl::StatusOr<Text> Render(const Value& variables, const std::tm& now,
                              EncodePace* pace = nullptr) const;

 private:
  explicit Template(Block block) : block_(std::move(block)) {}

  Block block_;
};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_TEMPLATE_H_
