#ifndef REFRAIN_TESTS_SUPPORT_COUNTING_GATE_H_
#define REFRAIN_TESTS_SUPPORT_COUNTING_GATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/access/account.h"
#include "server/access/gate.h"

namespace refrain::testing {

// A gate that lets everybody in, as one key of weight 2.5, and adds up what that key is charged.
// Any thread.
class CountingGate final : public server::access::Gate {
 public:
  absl::StatusOr<server::access::Principal> Authenticate(server::access::Area,
                                                         std::string_view) const override {
    return server::access::Principal{.key_name = "team-a", .weight = 2.5};
  }
  absl::StatusOr<server::access::Ticket> Admit(const server::access::Principal&) override {
    return server::access::Ticket(account_);
  }

  absl::Status StillHas(std::string_view key_name) const override {
    return removed && key_name == "team-a" ? absl::UnauthenticatedError("the key was removed")
                                           : absl::OkStatus();
  }

  std::atomic<bool> removed{false};  // its key, after Admit

  int64_t charged_tokens() const { return account_->tokens; }
  int requests() const { return account_->requests; }  // whose tickets are gone

 private:
  struct Account final : public server::access::Ticket::Account {
    void Leave() override { ++requests; }
    void Charge(int64_t charged) override { tokens += charged; }

    std::atomic<int64_t> tokens{0};
    std::atomic<int> requests{0};
  };

  const std::shared_ptr<Account> account_ = std::make_shared<Account>();
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_COUNTING_GATE_H_
