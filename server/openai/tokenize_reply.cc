#include "server/openai/tokenize_reply.h"

#include <string>
#include <utility>

#include "server/concat.h"
#include "server/error_reply.h"
#include "server/hold_bytes.h"
#include "server/json.h"
#include "server/openai/response_format.h"

namespace refrain::server::openai {
namespace {

// More are written on a worker thread: 20 ns each.
constexpr size_t kQuickTokens = 4096;
// An id and its comma in the answer.
constexpr size_t kBytesPerId = 8;
// About so much more where its text is there, too.
constexpr size_t kBytesPerString = 16;

}  // namespace

TokenizeReply::TokenizeReply(std::shared_ptr<engine::TokenStream> stream,
                             int32_t max_context_tokens, access::Ticket ticket,
                             std::shared_ptr<const void> text_hold, std::unique_ptr<HeldBytes> held,
                             const engine::Tokenizer* strings)
    : stream_(std::move(stream)),
      max_context_tokens_(max_context_tokens),
      ticket_(std::move(ticket)),
      text_hold_(std::move(text_hold)),
      held_(std::move(held)),
      strings_(strings) {}

TokenizeReply::~TokenizeReply() { stream_->SetWakeup(nullptr); }

void TokenizeReply::Start(std::function<void()> wakeup) { stream_->SetWakeup(std::move(wakeup)); }

http::ReplyPart TokenizeReply::Next() {
  engine::StreamBatch batch = stream_->Read();
  if (!batch.finished) return {};
  text_hold_.reset();
  if (!batch.status.ok()) return MakeErrorReply(batch.status)->Next();
  ids_ = std::move(batch.text_ids);
  if (ids_.size() <= kQuickTokens) return MakePart();
  const size_t bytes_per_token = kBytesPerId + (strings_ != nullptr ? kBytesPerString : 0);
  const absl::Status held = HoldBytes(ids_.size() * bytes_per_token, held_.get());
  if (!held.ok()) return MakeErrorReply(held)->Next();
  http::ReplyPart part;
  part.make = [this] { return MakePart(); };
  return part;
}

http::ReplyPart TokenizeReply::MakePart() {
  http::ReplyPart part;
  part.head.emplace();
  part.last = true;
  part.body = Concat("{\"count\":", ids_.size(), ",\"max_model_len\":", max_context_tokens_,
                     ",\"tokens\":[");
  for (size_t i = 0; i < ids_.size(); ++i) {
    ConcatTo(&part.body, i == 0 ? "" : ",", static_cast<int32_t>(ids_[i]));
  }
  part.body += "],\"token_strs\":";
  for (size_t i = 0; strings_ != nullptr && i < ids_.size(); ++i) {
    part.body += i == 0 ? "[" : ",";
    AppendJsonString(TokenText(strings_->TokenBytes(ids_[i])), &part.body);
  }
  if (strings_ == nullptr) {
    part.body += "null";
  } else {
    part.body += ids_.empty() ? "[]" : "]";
  }
  part.body += "}";
  ids_ = {};
  return part;
}

std::unique_ptr<http::Reply> DetokenizeReply::Make(const std::string& text, access::Ticket ticket,
                                                   std::unique_ptr<HeldBytes> held) {
  std::string body = "{\"prompt\":";
  AppendJsonString(text, &body);
  body += "}";
  if (body.size() > kUncountedBytes) {
    const absl::Status status = HoldBytes(body.capacity(), held.get());
    if (!status.ok()) return MakeErrorReply(status);
  }
  return std::unique_ptr<http::Reply>(
      new DetokenizeReply(std::move(body), std::move(ticket), std::move(held)));
}

http::ReplyPart DetokenizeReply::Next() {
  return {http::ResponseHead(), std::move(body_), /*last=*/true};
}

}  // namespace refrain::server::openai
