#ifndef REFRAIN_ENGINE_TEXT_JINJA_CALL_ARGUMENTS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_CALL_ARGUMENTS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja/template_error.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// The evaluated arguments of a call, filter or test.
struct CallArguments {
  Value::List positional;
  std::vector<std::pair<std::string, Value>> named;

  // By parameter: position or name. Throws TemplateError for one too many or an unknown name.
  std::vector<std::optional<Value>> Bind(std::string_view callee,
                                         std::initializer_list<std::string_view> parameters) const {
    if (positional.size() > parameters.size()) {
      throw TemplateError(std::string(callee) + " takes at most " +
                          std::to_string(parameters.size()) + " arguments, not " +
                          std::to_string(positional.size()));
    }
    std::vector<std::optional<Value>> bound(parameters.size());
    for (size_t i = 0; i < positional.size(); ++i) bound[i] = positional[i];
    for (const auto& [name, value] : named) {
      size_t place = 0;
      for (const std::string_view parameter : parameters) {
        if (parameter == name) break;
        ++place;
      }
      if (place == parameters.size()) {
        throw TemplateError(std::string(callee) + " has no parameter '" + name + "'");
      }
      bound[place] = value;
    }
    return bound;
  }
};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_CALL_ARGUMENTS_H_
