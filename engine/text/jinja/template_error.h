#ifndef REFRAIN_ENGINE_TEXT_JINJA_TEMPLATE_ERROR_H_
#define REFRAIN_ENGINE_TEXT_JINJA_TEMPLATE_ERROR_H_

#include <string>
#include <utility>

namespace refrain::engine::jinja {

// How the parser and the interpreter leave their recursion. Thrown and caught inside of this
// package only: Template turns it into a Status.
struct TemplateError {
  explicit TemplateError(std::string what) : message(std::move(what)) {}
  std::string message;
};

// The same where nobody wants what is rendered any more.
struct RenderingStopped {};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_TEMPLATE_ERROR_H_
