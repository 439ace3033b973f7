#include "server/access/gate.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "engine/token_stream.h"
#include "server/access/account.h"

namespace refrain::server::access {
namespace {

class OpenGate final : public Gate {
 public:
  absl::StatusOr<Principal> Authenticate(Area, std::string_view) const override {
    return Principal{};
  }
  absl::StatusOr<Ticket> Admit(const Principal&) override { return Ticket(); }
};

constexpr char kKeyNamePayload[] = "refrain/key_name";

}  // namespace

std::string RefusedKeyName(const absl::Status& status) {
  const auto name = status.GetPayload(kKeyNamePayload);
  return name.has_value() ? std::string(*name) : "";
}

absl::Status WithKeyName(absl::Status status, std::string_view name) {
  status.SetPayload(kKeyNamePayload, absl::Cord(std::string(name)));
  return status;
}

Ticket::Ticket(std::shared_ptr<Account> account) : account_(std::move(account)) {}

Ticket Ticket::OfUsageAlone(std::shared_ptr<Account> account) {
  Ticket ticket(std::move(account));
  ticket.left_ = true;
  return ticket;
}

Ticket::Ticket(Ticket&& other) noexcept = default;

Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  Leave();
  account_ = std::move(other.account_);
  left_ = other.left_;
  charged_tokens_ = other.charged_tokens_;
  return *this;
}

Ticket::~Ticket() { Leave(); }

void Ticket::Leave() {
  if (account_ != nullptr && !left_) account_->Leave();
  left_ = true;
}

void Ticket::ChargeUsage(const engine::Usage& usage) {
  const int64_t tokens = usage.computed_tokens;
  if (account_ == nullptr || tokens <= charged_tokens_) return;
  account_->Charge(tokens - charged_tokens_);
  charged_tokens_ = tokens;
}

std::unique_ptr<Gate> MakeOpenGate() { return std::make_unique<OpenGate>(); }

}  // namespace refrain::server::access
