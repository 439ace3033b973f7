#include "server/http/message.h"

#include "absl/strings/match.h"

namespace refrain::server::http {
namespace {

class WholeReply final : public Reply {
 public:
  WholeReply(ResponseHead head, std::string body)
      : head_(std::move(head)), body_(std::move(body)) {}

  ReplyPart Next() override { return {std::move(head_), std::move(body_), /*last=*/true}; }

 private:
  ResponseHead head_;
  std::string body_;
};

// Its first part makes the answer, whose parts are all others.
class ReplyFromWorker final : public Reply {
 public:
  explicit ReplyFromWorker(std::function<std::unique_ptr<Reply>()> make) : make_(std::move(make)) {}

  void Start(std::function<void()> wakeup) override { wakeup_ = std::move(wakeup); }

  ReplyPart Next() override {
    if (reply_ != nullptr) return reply_->Next();
    ReplyPart part;
    part.make = [this] {
      reply_ = std::exchange(make_, nullptr)();
      reply_->Start(std::exchange(wakeup_, nullptr));
      ReplyPart first = reply_->Next();
      while (first.make) first = std::exchange(first.make, nullptr)();
      return first;
    };
    return part;
  }

  ReplyPart Ping() override { return reply_ != nullptr ? reply_->Ping() : ReplyPart(); }

  void WhileBlocked() override {
    if (reply_ != nullptr) reply_->WhileBlocked();
  }

  void OnLastBytes() override {
    if (reply_ != nullptr) reply_->OnLastBytes();  // null: making it failed
  }

 private:
  std::function<std::unique_ptr<Reply>()> make_;  // null: called
  std::function<void()> wakeup_;                  // until there is an answer to give it to
  std::unique_ptr<Reply> reply_;
};

}  // namespace

std::string_view Request::Header(std::string_view name) const {
  return FindHeader(name).value_or(std::string_view());
}

std::optional<std::string_view> Request::FindHeader(std::string_view name) const {
  const absl::string_view wanted(name.data(), name.size());
  for (const auto& [header, value] : headers) {
    if (absl::EqualsIgnoreCase(header, wanted)) return value;
  }
  return std::nullopt;
}

std::unique_ptr<Reply> MakeReply(ResponseHead head, std::string body) {
  return std::make_unique<WholeReply>(std::move(head), std::move(body));
}

std::unique_ptr<Reply> MakeReplyOnWorker(std::function<std::unique_ptr<Reply>()> make) {
  return std::make_unique<ReplyFromWorker>(std::move(make));
}

}  // namespace refrain::server::http
