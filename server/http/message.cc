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

}  // namespace refrain::server::http
