#include "server/openai/responses_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/request_id.h"

namespace refrain::server::openai {
namespace {

// Of an item, by its kind.
struct KindNames {
  std::string_view type;
  std::string_view id_prefix;
  std::string_view text;  // of the events that tell its text
};

constexpr KindNames kKindNames[] = {{"reasoning", "rs_", "reasoning_text"},
                                    {"message", "msg_", "output_text"},
                                    {"function_call", "fc_", "function_call_arguments"}};

// Of the words that OpenAI has for the error of a response.
std::string_view FailureCode(const ApiError& error) {
  if (error.http_status == 429) return "rate_limit_exceeded";
  return error.http_status < 500 && error.http_status != 408 ? "invalid_prompt" : "server_error";
}

// Messages quote what clients sent.
void AppendQuoting(std::string_view text, std::string* out) {
  AppendJsonString(engine::ReplaceIllFormedUtf8(text), out);
}

// Both without their brackets.
void AppendList(std::string_view list, std::string* out) {
  if (!list.empty()) ConcatTo(out, out->empty() ? "" : ",", list);
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
  items_ = std::vector<Item>();
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
  // Of tokens that show nothing what follows says where they belong.
  if (answer_.has_logprobs) {
    const std::span<const TokenDetails> tokens(piece.tokens);
    std::string logprobs;
    names_.AppendList(tokens.subspan(piece.thought_tokens), piece.end_token, &logprobs);
    AppendList(logprobs, &waiting_logprobs_);
  }
  if (!piece.reasoning.empty()) AddReasoning(piece.reasoning, events);
  const bool is_call = piece.call.has_value();
  const bool ends = piece.finish.has_value();
  const bool is_empty = ends && items_.empty() && !is_call;
  const bool ends_text = ends && !waiting_logprobs_.empty() && is_open(Kind::kMessage) && !is_call;
  if (!piece.text.empty() || ends_text || is_empty) {
    AddText(piece.text, std::exchange(waiting_logprobs_, {}), events);
  }
  if (is_call) {
    waiting_logprobs_.clear();
    AddCall(*piece.call, events);
  }
  if (!ends) return;
  end_ = piece.finish == engine::FinishReason::kLength ? State::kIncomplete : State::kCompleted;
  // The limit may have come behind the thought.
  const bool thought = is_open(Kind::kReasoning) && !piece.thinks;
  Close(thought ? State::kCompleted : end_, events);
}

void ResponsesFormat::AddReasoning(std::string_view text, std::string* events) {
  if (!is_open(Kind::kReasoning)) OpenItem(Kind::kReasoning, {}, events);
  items_.back().text.append(text);
  if (events == nullptr) return;
  AppendDelta(text, 0, events);
  EndEvent(events);
}

void ResponsesFormat::AddText(std::string_view text, std::string_view logprobs,
                              std::string* events) {
  if (!is_open(Kind::kMessage)) OpenItem(Kind::kMessage, {}, events);
  Item& message = items_.back();
  message.text.append(text);
  AppendList(logprobs, &message.logprobs);
  if (events == nullptr || (text.empty() && logprobs.empty())) return;
  AppendDelta(text, logprobs.size(), events);
  ConcatTo(events, ",\"logprobs\":[", logprobs, "]");
  EndEvent(events);
}

void ResponsesFormat::AddCall(const ToolCallDelta& delta, std::string* events) {
  if (delta.name.has_value()) OpenItem(Kind::kCall, *delta.name, events);
  if (!is_open(Kind::kCall) || delta.arguments.empty()) return;
  items_.back().text.append(delta.arguments);
  if (events == nullptr) return;
  AppendDelta(delta.arguments, 0, events);
  EndEvent(events);
}

void ResponsesFormat::AppendDelta(std::string_view text, size_t more_bytes, std::string* events) {
  constexpr size_t kMostMembersBytes = 100;
  const size_t bytes = delta_head_.size() + text.size() + more_bytes + kMostMembersBytes;
  if (events->capacity() - events->size() < bytes) {
    events->reserve(std::max(events->size() + bytes, 2 * events->capacity()));
  }
  events->append(delta_head_);
  AppendJsonString(text, events);
}

void ResponsesFormat::OpenItem(Kind kind, std::string_view name, std::string* events) {
  Close(State::kCompleted, events);
  const KindNames& names = kKindNames[static_cast<size_t>(kind)];
  Item& item = items_.emplace_back();
  item.kind = kind;
  // Not made of the answer's id: a client may send the same x-request-id with each turn of a
  // conversation, and the turns' items must differ.
  item.id = Concat(names.id_prefix, MakeRequestId());
  if (kind == Kind::kCall) item.call_id = Concat("call_", MakeRequestId());
  item.name = name;
  const bool has_part = kind != Kind::kCall;
  if (events == nullptr) {
    item.has_part = has_part;
    return;
  }
  BeginEvent("response.output_item.added", events);
  ConcatTo(events, ",\"output_index\":", items_.size() - 1, ",\"item\":");
  AppendItem(item, events);
  EndEvent(events);
  item.has_part = has_part;
  if (has_part) {
    BeginEvent("response.content_part.added", events);
    AppendPlace(events);
    events->append(",\"part\":");
    AppendPart(item, events);
    EndEvent(events);
  }
  delta_head_.clear();
  BeginEvent(Concat("response.", names.text, ".delta"), &delta_head_);
  AppendPlace(&delta_head_);
  delta_head_.append(",\"delta\":");
}

void ResponsesFormat::Close(State state, std::string* events) {
  if (!is_open()) return;
  Item& item = items_.back();
  const bool is_call = item.kind == Kind::kCall;
  item.state = state;
  // However it ended, a call is to be run where all of its arguments are there.
  if (is_call) item.state = Json::accept(item.text) ? State::kCompleted : State::kIncomplete;
  if (events == nullptr) return;
  BeginEvent(Concat("response.", kKindNames[static_cast<size_t>(item.kind)].text, ".done"), events);
  AppendPlace(events);
  if (is_call) {
    events->append(",\"name\":");
    AppendJsonString(item.name, events);
  }
  events->append(is_call ? ",\"arguments\":" : ",\"text\":");
  AppendJsonString(item.text, events);
  if (item.kind == Kind::kMessage) ConcatTo(events, ",\"logprobs\":[", item.logprobs, "]");
  EndEvent(events);
  if (!is_call) {
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
           item.kind == Kind::kCall ? "" : ",\"content_index\":0");
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
  ConcatTo(out, "},\"output_tokens\":", usage.completion_tokens,
           ",\"output_tokens_details\":{\"reasoning_tokens\":", reasoning_tokens().value_or(0),
           "},\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens, "}");
}

void ResponsesFormat::AppendItem(const Item& item, std::string* out) {
  ConcatTo(out, "{\"id\":\"", item.id, "\",\"type\":\"",
           kKindNames[static_cast<size_t>(item.kind)].type, "\",\"status\":\"", NameOf(item.state),
           "\",");
  if (item.kind == Kind::kCall) {
    ConcatTo(out, "\"call_id\":\"", item.call_id, "\",\"name\":");
    AppendJsonString(item.name, out);
    out->append(",\"arguments\":");
    AppendJsonString(item.text, out);
  } else {
    out->append(item.kind == Kind::kMessage ? R"("role":"assistant")" : R"("summary":[])");
    out->append(",\"content\":[");
    if (item.has_part) AppendPart(item, out);
    out->append("]");
  }
  out->append("}");
}

void ResponsesFormat::AppendPart(const Item& item, std::string* out) {
  if (item.kind == Kind::kMessage) {
    ConcatTo(out, R"({"type":"output_text","annotations":[],"logprobs":[)", item.logprobs, "],");
  } else {
    out->append(R"({"type":"reasoning_text",)");
  }
  out->append("\"text\":");
  AppendJsonString(item.text, out);
  out->append("}");
}

}  // namespace refrain::server::openai
