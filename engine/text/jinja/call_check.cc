#include "engine/text/jinja/call_check.h"

#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/objects.h"
#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {
namespace {

[[noreturn]] void Refuse(const std::string& what, const std::string& name, int line) {
  throw TemplateError("line " + std::to_string(line) + ": " + what + " '" + name +
                      "' is not supported");
}

}  // namespace

bool CallCheck::IsOfMacro(const std::string& name) const {
  if (macro_depth_ == 0 || (name != "varargs" && name != "kwargs" && name != "caller"))
    return false;
  const auto uses = names_.find(name);
  return uses == names_.end() || !uses->second.has_value;
}

void CallCheck::Check() const {
  for (const auto& [name, uses] : attributes_) {
    // Methods of an object, the loop.
    const bool of_loop = name == "cycle" || name == "changed";
    if (!uses.only_called() || of_loop || IsMethodName(name)) continue;
    Refuse("method", name, uses.first_call_line);
  }
  for (const auto& [name, uses] : names_) {
    if (!uses.only_called() || name == "loop" || !FindGlobalFunction(name).is_undefined()) continue;
    Refuse("function", name, uses.first_call_line);
  }
}

}  // namespace refrain::engine::jinja
