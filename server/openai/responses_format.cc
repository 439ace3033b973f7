#include "server/openai/responses_format.h"

#include <algorithm>
#include <utility>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/request_id.h"

namespace refrain::server::openai {
namespace {

// Of the words that OpenAI has for the error of a response.
std::string_view FailureCode(const ApiError& error) {
  if (error.http_status == 429) return "rate_limit_exceeded";
  return error.http_status < 500 && error.http_status != 408 ? "invalid_prompt" : "server_error";
}

// Messages quote what clients sent.
void AppendQuoting(std::string_view text, std::string* out) {
  AppendJsonString(engine::ReplaceIllFormedUtf8(text), out);
}

void AppendStringOrNull(const std::optional<std::string>& text, std::string* out) {
  if (text.has_value()) {
    AppendQuoting(*text, out);
  } else {
    out->append("null");
  }
}

}  // namespace

ResponsesFormat::ResponsesFormat(Answer answer, const engine::Tokenizer* tokenizer)
    : answer_(std::move(answer)), names_(tokenizer, answer_.tokens_as_ids) {}

std::string_view ResponsesFormat::NameOf(State state) {
  switch (state) {
    case State::kInProgress:
      return "in_progress";
    case State::kCompleted:
      return "completed";
    case State::kIncomplete:
      return "incomplete";
    case State::kFailed:
      break;
  }
  return "failed";
}

void ResponsesFormat::AppendEvents(int32_t /*choice*/, TextPiece& piece,
                                   const std::vector<engine::TokenId>& /*prompt_ids*/,
                                   const std::optional<engine::Usage>& /*usage*/,
                                   std::string* out) {
  if (!std::exchange(begun_, true)) {
    for (const char* const type : {"response.created", "response.in_progress"}) {
      AppendResponseEvent(type, State::kInProgress, nullptr, nullptr, out);
    }
  }
  Add(piece, out);
}

void ResponsesFormat::Keep(int32_t /*choice*/, TextPiece piece) { Add(piece, nullptr); }

void ResponsesFormat::AppendEnd(const engine::Usage& usage, std::string* out) {
  AppendResponseEvent(Concat("response.", NameOf(end_)), end_, nullptr, &usage, out);
}

void ResponsesFormat::AppendFailure(const ApiError& error, const engine::Usage& usage,
                                    std::string* out) {
  BeginEvent("error", out);
  out->append(",\"code\":");
  AppendStringOrNull(error.code, out);
  out->append(",\"message\":");
  AppendQuoting(error.message, out);
  out->append(",\"param\":");
  AppendStringOrNull(error.param, out);
  const std::string body = ErrorBody(error);  // {"error":{...}}
  out->append(",").append(body, 1, body.size() - 2);
  EndEvent(out);
  if (!begun_) return;
  items_ = std::vector<Item>();
  AppendResponseEvent("response.failed", State::kFailed, &error, &usage, out);
}

std::string ResponsesFormat::TakeWhole(const std::vector<PromptTokens>& /*prompts*/,
                                       const engine::Usage& usage) {
  std::string body;
  AppendResponse(end_, nullptr, &usage, &body);
  items_ = std::vector<Item>();
  return body;
}

void ResponsesFormat::Add(const TextPiece& piece, std::string* events) {
  std::string logprobs;
  if (answer_.has_logprobs) names_.AppendList(piece.tokens, piece.end_token, &logprobs);
  const bool is_call = piece.call.has_value();
  const bool is_empty = piece.finish.has_value() && items_.empty() && !is_call;
  // Tokens that show nothing are told beside a text, of which they are the end.
  const bool ends_text = !logprobs.empty() && message_is_open() && !is_call;
  if (!piece.text.empty() || ends_text || is_empty) AddText(piece.text, logprobs, events);
  if (is_call) AddCall(*piece.call, events);
  if (!piece.finish.has_value()) return;
  end_ = piece.finish == engine::FinishReason::kLength ? State::kIncomplete : State::kCompleted;
  const bool cut_call = is_open() && items_.back().is_call && !piece.called;
  Close(cut_call ? State::kIncomplete : end_, events);
}

void ResponsesFormat::AddText(std::string_view text, std::string_view logprobs,
                              std::string* events) {
  if (!message_is_open()) OpenMessage(events);
  Item& message = items_.back();
  message.text.append(text);
  if (!logprobs.empty()) {
    ConcatTo(&message.logprobs, message.logprobs.empty() ? "" : ",", logprobs);
  }
  if (events == nullptr || (text.empty() && logprobs.empty())) return;
  constexpr size_t kMostMembersBytes = 100;
  const size_t bytes = delta_head_.size() + text.size() + logprobs.size() + kMostMembersBytes;
  if (events->capacity() - events->size() < bytes) {
    events->reserve(std::max(events->size() + bytes, 2 * events->capacity()));
  }
  events->append(delta_head_);
  AppendJsonString(text, events);
  ConcatTo(events, ",\"logprobs\":[", logprobs, "]");
  EndEvent(events);
}

void ResponsesFormat::AddCall(const ToolCallDelta& delta, std::string* events) {
  if (delta.name.has_value()) OpenCall(*delta.name, events);
  if (!is_open() || delta.arguments.empty()) return;
  items_.back().text.append(delta.arguments);
  if (events == nullptr) return;
  events->append(delta_head_);
  AppendJsonString(delta.arguments, events);
  EndEvent(events);
}

void ResponsesFormat::OpenMessage(std::string* events) {
  Close(State::kCompleted, events);
  Item& message = items_.emplace_back();
  // Not made of the answer's id: a client may send the same x-request-id with each turn of a
  // conversation, and the turns' items must differ.
  message.id = Concat("msg_", MakeRequestId());
  if (events == nullptr) return;
  BeginEvent("response.output_item.added", events);
  ConcatTo(events, ",\"output_index\":", items_.size() - 1, R"(,"item":{"id":")", message.id,
           R"(","type":"message","status":"in_progress","role":"assistant","content":[]})");
  EndEvent(events);
  BeginEvent("response.content_part.added", events);
  AppendPlace(events);
  events->append(",\"part\":");
  AppendPart(message, events);
  EndEvent(events);
  delta_head_.clear();
  BeginEvent("response.output_text.delta", &delta_head_);
  AppendPlace(&delta_head_);
  delta_head_.append(",\"delta\":");
}

void ResponsesFormat::OpenCall(std::string_view name, std::string* events) {
  Close(State::kCompleted, events);
  Item& call = items_.emplace_back();
  call.is_call = true;
  call.id = Concat("fc_", MakeRequestId());
  call.call_id = Concat("call_", MakeRequestId());
  call.name = name;
  if (events == nullptr) return;
  BeginEvent("response.output_item.added", events);
  ConcatTo(events, ",\"output_index\":", items_.size() - 1, ",\"item\":");
  AppendItem(call, events);
  EndEvent(events);
  delta_head_.clear();
  BeginEvent("response.function_call_arguments.delta", &delta_head_);
  AppendPlace(&delta_head_);
  delta_head_.append(",\"delta\":");
}

void ResponsesFormat::Close(State state, std::string* events) {
  if (!is_open()) return;
  Item& item = items_.back();
  item.state = state;
  if (events == nullptr) return;
  if (item.is_call) {
    BeginEvent("response.function_call_arguments.done", events);
    AppendPlace(events);
    events->append(",\"name\":");
    AppendJsonString(item.name, events);
    events->append(",\"arguments\":");
    AppendJsonString(item.text, events);
    EndEvent(events);
  } else {
    BeginEvent("response.output_text.done", events);
    AppendPlace(events);
    events->append(",\"text\":");
    AppendJsonString(item.text, events);
    ConcatTo(events, ",\"logprobs\":[", item.logprobs, "]");
    EndEvent(events);
    BeginEvent("response.content_part.done", events);
    AppendPlace(events);
    events->append(",\"part\":");
    AppendPart(item, events);
    EndEvent(events);
  }
  BeginEvent("response.output_item.done", events);
  ConcatTo(events, ",\"output_index\":", items_.size() - 1, ",\"item\":");
  AppendItem(item, events);
  EndEvent(events);
}

void ResponsesFormat::BeginEvent(std::string_view type, std::string* out) {
  ConcatTo(out, "event: ", type, "\ndata: {\"type\":\"", type, "\"");
}

void ResponsesFormat::EndEvent(std::string* out) {
  ConcatTo(out, ",\"sequence_number\":", next_number_++, "}\n\n");
}

void ResponsesFormat::AppendPlace(std::string* out) const {
  const Item& item = items_.back();
  ConcatTo(out, ",\"item_id\":\"", item.id, "\",\"output_index\":", items_.size() - 1,
           item.is_call ? "" : ",\"content_index\":0");
}

void ResponsesFormat::AppendResponseEvent(std::string_view type, State state,
                                          const ApiError* error_or_null,
                                          const engine::Usage* usage_or_null, std::string* out) {
  BeginEvent(type, out);
  out->append(",\"response\":");
  AppendResponse(state, error_or_null, usage_or_null, out);
  EndEvent(out);
}

void ResponsesFormat::AppendResponse(State state, const ApiError* error_or_null,
                                     const engine::Usage* usage_or_null, std::string* out) const {
  out->append("{\"id\":");
  AppendJsonString(answer_.id, out);
  ConcatTo(out, R"(,"object":"response","created_at":)", answer_.created_unix_s, ",\"status\":\"",
           NameOf(state), "\",\"error\":");
  if (error_or_null == nullptr) {
    out->append("null");
  } else {
    ConcatTo(out, "{\"code\":\"", FailureCode(*error_or_null), "\",\"message\":");
    AppendQuoting(error_or_null->message, out);
    out->append("}");
  }
  out->append(",\"incomplete_details\":");
  out->append(state == State::kIncomplete ? R"({"reason":"max_output_tokens"})" : "null");
  out->append(",\"model\":");
  AppendJsonString(answer_.model, out);
  out->append(",\"output\":[");
  for (size_t i = 0; i < items_.size(); ++i) {
    if (i > 0) out->append(",");
    AppendItem(items_[i], out);
  }
  out->append(R"(],"background":false,"previous_response_id":null,"service_tier":"default",)"
              R"("store":false,)");
  ConcatTo(out, answer_.echo, ",\"usage\":");
  if (usage_or_null == nullptr) {
    out->append("null");
  } else {
    AppendUsage(*usage_or_null, out);
  }
  out->append("}");
}

void ResponsesFormat::AppendUsage(const engine::Usage& usage, std::string* out) const {
  ConcatTo(out, "{\"input_tokens\":", usage.prompt_tokens, ",\"input_tokens_details\":{");
  AppendCacheUsage(usage, out);
  // What a model thinks is text here, and not told apart.
  ConcatTo(out, "},\"output_tokens\":", usage.completion_tokens,
           ",\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":",
           usage.prompt_tokens + usage.completion_tokens, "}");
}

void ResponsesFormat::AppendItem(const Item& item, std::string* out) {
  ConcatTo(out, "{\"id\":\"", item.id, "\",\"type\":\"", item.is_call ? "function_call" : "message",
           "\",\"status\":\"", NameOf(item.state), "\",");
  if (item.is_call) {
    ConcatTo(out, "\"call_id\":\"", item.call_id, "\",\"name\":");
    AppendJsonString(item.name, out);
    out->append(",\"arguments\":");
    AppendJsonString(item.text, out);
  } else {
    out->append(R"("role":"assistant","content":[)");
    AppendPart(item, out);
    out->append("]");
  }
  out->append("}");
}

void ResponsesFormat::AppendPart(const Item& item, std::string* out) {
  out->append(R"({"type":"output_text","annotations":[],"logprobs":[)");
  ConcatTo(out, item.logprobs, "],\"text\":");
  AppendJsonString(item.text, out);
  out->append("}");
}

}  // namespace refrain::server::openai
