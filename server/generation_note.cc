#include "server/generation_note.h"

#include <algorithm>
#include <cmath>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/status_mapping.h"

namespace refrain::server {
namespace {

constexpr size_t kMaxBodyBytes = 64 << 10;

}  // namespace

std::string_view FieldForLogs(std::string_view field) {
  constexpr size_t kMostBytes = 64;
  const auto may_be_shown = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.[]").find(c) != std::string_view::npos;
  };
  const bool is_name = !field.empty() && field.size() <= kMostBytes &&
                       std::all_of(field.begin(), field.end(), may_be_shown);
  return is_name ? field : "(a name of the client's)";
}

void AppendOutcome(const GenerationOutcome& outcome, std::string* details) {
  if (!details->empty()) *details += ',';
  ConcatTo(details, "\"stream\":", outcome.stream ? "true" : "false",
           ",\"choices\":", outcome.choices, ",\"prompt_tokens\":", outcome.usage.prompt_tokens,
           ",\"cached_tokens\":", outcome.usage.cached_tokens,
           ",\"completion_tokens\":", outcome.usage.completion_tokens);
  if (outcome.first_token_ms.has_value()) {
    const double microseconds = std::round(*outcome.first_token_ms * 1000);
    ConcatTo(details, ",\"first_token_ms\":", microseconds / 1000);
  }
  if (!outcome.error.empty()) ConcatTo(details, ",\"error\":\"", outcome.error, "\"");
}

void AppendRefusal(const absl::Status& refusal, std::string* details) {
  if (refusal.ok()) return;
  const ApiError error = ApiErrorFromStatus(refusal);
  if (!details->empty()) *details += ',';
  ConcatTo(details, "\"error\":\"", error.code.value_or(error.type), "\"");
  if (!error.param.has_value()) return;
  ConcatTo(details, ",\"param\":\"", FieldForLogs(*error.param), "\"");
}

void AppendBody(std::string_view body, std::string* details) {
  *details += details->empty() ? "\"body\":" : ",\"body\":";
  AppendJsonString(engine::ReplaceIllFormedUtf8(body.substr(0, kMaxBodyBytes)), details);
}

}  // namespace refrain::server
