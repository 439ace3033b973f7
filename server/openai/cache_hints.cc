#include "server/openai/cache_hints.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/concat.h"
#include "server/json.h"

namespace refrain::server::openai {
namespace {

// "30m", "12h". Which there are depends on the model and on the year.
bool IsLifetime(const std::string& text) {
  constexpr size_t kMaxDigits = 6;
  if (text.size() < 2 || text.size() > kMaxDigits + 1 || text.front() == '0') return false;
  return std::string_view("smhd").find(text.back()) != std::string_view::npos &&
         std::all_of(text.begin(), text.end() - 1, [](char c) { return c >= '0' && c <= '9'; });
}

// Whether there is one.
bool ReadLifetime(FieldReader& fields) {
  const auto ttl = fields.String("ttl", 64);
  if (ttl.has_value() && !IsLifetime(*ttl)) {
    fields.Refuse("ttl", Concat("must be a lifetime such as \"30m\" or \"12h\", not ",
                                ShownValue(Json(*ttl))));
  }
  return ttl.has_value();
}

// Whether `part` has one.
bool ReadBreakpoint(const Json& part, const std::string& prefix, FieldReader& all) {
  constexpr char kName[] = "prompt_cache_breakpoint";
  if (!part.is_object() || !part.contains(kName)) return false;
  FieldReader fields(part, prefix);
  const Json* const breakpoint = fields.ObjectOrNull(kName);
  all.Fail(fields.status());
  if (breakpoint == nullptr) return false;
  FieldReader inner(*breakpoint, Concat(prefix, kName, "."));
  if (inner.String("mode", 64) != "explicit") inner.Refuse("mode", "must be \"explicit\"");
  ReadLifetime(inner);
  all.Fail(inner.status());
  return true;
}

}  // namespace

bool ReadCacheBreakpoints(FieldReader& fields, std::string_view conversation) {
  const Json* const messages = fields.AnyOrNull(conversation);
  if (messages == nullptr || !messages->is_array()) return false;
  bool has_any = false;
  for (size_t i = 0; i < messages->size(); ++i) {
    const Json& message = (*messages)[i];
    if (!message.is_object()) continue;
    for (const char* const member : {"content", "output"}) {
      if (std::string_view(member) == "output" && conversation != "input")
        continue;  // a function's
      const auto parts = message.find(member);
      if (parts == message.end() || !parts->is_array()) continue;
      for (size_t j = 0; j < parts->size(); ++j) {
        const std::string prefix = Concat(conversation, "[", i, "].", member, "[", j, "].");
        has_any = ReadBreakpoint((*parts)[j], prefix, fields) || has_any;
      }
    }
  }
  return has_any;
}

std::optional<bool> ReadCacheHints(FieldReader& fields, std::string_view conversation) {
  fields.Describe("prompt_cache_options",
                  R"({"type":["object","null"],"properties":{)"
                  R"("mode":{"enum":["implicit","explicit",null]},)"
                  R"("ttl":{"$ref":"#/components/schemas/CacheLifetime"}}})");
  bool explicit_alone = false;
  bool has_lifetime = false;
  if (const Json* options = fields.ObjectOrNull("prompt_cache_options")) {
    FieldReader inner(*options, "prompt_cache_options.");
    const auto mode = inner.String("mode", 64);
    if (mode.has_value() && mode != "implicit" && mode != "explicit") {
      inner.Refuse("mode",
                   Concat("must be \"implicit\" or \"explicit\", not ", ShownValue(Json(*mode))));
    }
    explicit_alone = mode == "explicit";
    has_lifetime = ReadLifetime(inner);
    fields.Fail(inner.status());
  }
  const bool has_breakpoint = !conversation.empty() && ReadCacheBreakpoints(fields, conversation);
  if (has_breakpoint) return true;
  if (explicit_alone) return false;
  if (has_lifetime) return true;
  return std::nullopt;
}

}  // namespace refrain::server::openai
