#include "server/openai/tokenize_reply.h"

#include <string>
#include <utility>

#include "server/concat.h"
#include "server/error_reply.h"
#include "server/generation_note.h"
#include "server/hold_bytes.h"
#include "server/json.h"
#include "server/openai/token_names.h"

namespace refrain::server::openai {
namespace {

// More are written on a worker thread: 20 ns each.
constexpr size_t kQuickTokens = 4096;
// An id and its comma in the answer.
constexpr size_t kBytesPerId = 8;
// About so much more where its text is there, too.
constexpr size_t kBytesPerString = 16;

}  // namespace

TokenizeReply::TokenizeReply(Parts parts) : parts_(std::move(parts)) {}

TokenizeReply::~TokenizeReply() { parts_.stream->SetWakeup(nullptr); }

void TokenizeReply::Start(std::function<void()> wakeup) {
  parts_.stream->SetWakeup(std::move(wakeup));
}

http::ReplyPart TokenizeReply::Next() {
  engine::StreamBatch batch = parts_.stream->Read();
  if (!batch.finished) return {};
  parts_.text_hold.reset();
  if (!batch.status.ok()) return Refuse(batch.status);
  ids_ = std::move(batch.text_ids);
  if (ids_.size() <= kQuickTokens) return MakePart();
  const size_t bytes_per_token = kBytesPerId + (parts_.strings != nullptr ? kBytesPerString : 0);
  const absl::Status held = HoldBytes(ids_.size() * bytes_per_token, parts_.held.get());
  if (!held.ok()) return Refuse(held);
  http::ReplyPart part;
  part.make = [this] { return MakePart(); };
  return part;
}

http::ReplyPart TokenizeReply::Refuse(const absl::Status& status) const {
  if (parts_.notes != nullptr) AppendRefusal(status, &parts_.notes->details);
  return MakeErrorReply(status)->Next();
}

http::ReplyPart TokenizeReply::MakePart() {
  http::ReplyPart part;
  part.head.emplace();
  part.last = true;
  part.body = Concat("{\"count\":", ids_.size(), ",\"max_model_len\":", parts_.max_context_tokens,
                     ",\"tokens\":[");
  for (size_t i = 0; i < ids_.size(); ++i) {
    ConcatTo(&part.body, i == 0 ? "" : ",", static_cast<int32_t>(ids_[i]));
  }
  part.body += "],\"token_strs\":";
  for (size_t i = 0; parts_.strings != nullptr && i < ids_.size(); ++i) {
    part.body += i == 0 ? "[" : ",";
    AppendJsonString(TokenText(parts_.strings->TokenBytes(ids_[i])), &part.body);
  }
  if (parts_.strings == nullptr) {
    part.body += "null";
  } else {
    part.body += ids_.empty() ? "[]" : "]";
  }
  part.body += "}";
  ids_ = {};
  return part;
}

absl::StatusOr<std::unique_ptr<http::Reply>> DetokenizeReply::Make(
    const std::string& text, access::Ticket ticket, std::unique_ptr<HeldBytes> held) {
  std::string body = "{\"prompt\":";
  AppendJsonString(text, &body);
  body += "}";
  if (body.size() > kUncountedBytes) {
    absl::Status status = HoldBytes(body.capacity(), held.get());
    if (!status.ok()) return status;
  }
  return std::unique_ptr<http::Reply>(
      new DetokenizeReply(std::move(body), std::move(ticket), std::move(held)));
}

http::ReplyPart DetokenizeReply::Next() {
  return {http::ResponseHead(), std::move(body_), /*last=*/true};
}

}  // namespace refrain::server::openai
