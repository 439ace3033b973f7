#ifndef REFRAIN_ENGINE_TEXT_JINJA_PARSER_H_
#define REFRAIN_ENGINE_TEXT_JINJA_PARSER_H_

#include <string_view>

#include "engine/text/jinja/ast.h"

namespace refrain::engine::jinja {

// Source to statements. Throws TemplateError naming the line and the construct: what is malformed,
// nested too deeply, or beyond the subset (other statements, filters and tests that do not exist
// here). Names of variables and functions are looked up only when rendered, as jinja2 does.
Block ParseTemplate(std::string_view source);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_PARSER_H_
