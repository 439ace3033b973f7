#include "engine/text/jinja/template.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/interpreter.h"
#include "engine/text/jinja/parser.h"
#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {

absl::StatusOr<std::unique_ptr<Template>> Template::Parse(std::string_view source) {
  try {
    return std::unique_ptr<Template>(new Template(ParseTemplate(source)));
  } catch (const TemplateError& error) {
    return absl::InvalidArgumentError(absl::StrCat("chat template: ", error.message));
  }
}

absl::StatusOr<Text> Template::Render(const Value& variables, const std::tm& now,
                                      EncodePace* pace) const {
  if (!variables.is_map()) return absl::InvalidArgumentError("template variables are not a map");
  if (variables.depth() > Budget::kMaxValueDepth) {
    return absl::InvalidArgumentError(absl::StrCat("chat template: the messages nest ",
                                                   variables.depth(), " deep, beyond the limit of ",
                                                   Budget::kMaxValueDepth));
  }
  try {
    return Interpreter(variables, now, pace).Run(block_);
  } catch (const TemplateError& error) {
    return absl::InvalidArgumentError(absl::StrCat("chat template: ", error.message));
  } catch (const RenderingStopped&) {
    return absl::CancelledError("rendering was stopped");
  }
}

}  // namespace refrain::engine::jinja
