#include "server/openai/tokenize_reply.h"

#include <string>
#include <utility>

#include "server/concat.h"
#include "server/error_reply.h"

namespace refrain::server::openai {
namespace {

// More are written on a worker thread: 20 ns each.
constexpr size_t kQuickTokens = 4096;

}  // namespace

TokenizeReply::TokenizeReply(std::shared_ptr<engine::TokenStream> stream,
                             int32_t max_context_tokens, access::Ticket ticket)
    : stream_(std::move(stream)),
      max_context_tokens_(max_context_tokens),
      ticket_(std::move(ticket)) {}

TokenizeReply::~TokenizeReply() { stream_->SetWakeup(nullptr); }

void TokenizeReply::Start(std::function<void()> wakeup) { stream_->SetWakeup(std::move(wakeup)); }

http::ReplyPart TokenizeReply::Next() {
  engine::StreamBatch batch = stream_->Read();
  if (!batch.finished) return {};
  if (!batch.status.ok()) return MakeErrorReply(batch.status)->Next();
  ids_ = std::move(batch.text_ids);
  if (ids_.size() <= kQuickTokens) return MakePart();
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
  part.body += "]}";
  ids_ = {};
  return part;
}

}  // namespace refrain::server::openai
