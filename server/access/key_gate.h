#ifndef REFRAIN_SERVER_ACCESS_KEY_GATE_H_
#define REFRAIN_SERVER_ACCESS_KEY_GATE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/annotated_mutex.h"
#include "server/access/api_keys.h"
#include "server/access/gate.h"

namespace refrain::server::access {

class KeyAccount;

struct KeyGateOptions {
  std::string keys_file;        // "" = everything of kInference is open
  std::string admin_keys_file;  // "" = kAdmin is open only where keys_file is "" too
  int32_t requests = 0;         // at once, of a key that says nothing itself; 0 = no limit
  double tokens_per_s = 0;      // likewise
  std::function<std::chrono::steady_clock::time_point()> now;  // empty = the steady clock
};

// Keys in each file.
struct KeyCounts {
  size_t inference = 0;
  size_t admin = 0;
};

// The gate of a server with API keys. Files are read by Load and Reload only; a reload that fails
// leaves the keys as they were, and what keys use now stays counted across reloads.
// Any thread.
class KeyGate final : public Gate {
 public:
  // NOT_FOUND, INVALID_ARGUMENT: which file, which line, what is wrong.
  static absl::StatusOr<std::unique_ptr<KeyGate>> Load(KeyGateOptions options);
  ~KeyGate() override;

  // The names that keys had before and have no more, sorted. As Load, and FAILED_PRECONDITION where
  // a file that held keys has no byte: who writes it anew cuts it first.
  absl::StatusOr<std::vector<std::string>> Reload();
  KeyCounts num_keys() const;  // in use

  absl::StatusOr<Principal> Authenticate(Area area, std::string_view authorization) const override;
  absl::StatusOr<Ticket> Admit(const Principal& principal) override;
  absl::Status StillHas(std::string_view key_name) const override;
  Ticket UsageOf(std::string_view key_name) override;
  std::optional<double> WeightOf(std::string_view key_name) const override;

 private:
  struct Rings {
    KeyRing inference;
    KeyRing admin;
  };

  struct Account {
    std::shared_ptr<KeyAccount> uses;
    bool has_key = false;  // now
  };

  explicit KeyGate(KeyGateOptions options);
  absl::StatusOr<Rings> Read(const KeyCounts& before) const;
  Account AccountOf(std::string_view key_name) const;  // `uses` is null: no key has had that name
  std::shared_ptr<const Rings> rings() const;

  const KeyGateOptions options_;
  mutable Mutex mutex_;
  std::shared_ptr<const Rings> rings_ REFRAIN_GUARDED_BY(mutex_);
  std::map<std::string, Account, std::less<>> accounts_ REFRAIN_GUARDED_BY(mutex_);
};

// What a request of a key is told that was removed while it waited. UNAUTHENTICATED.
absl::Status KeyRemoved();

}  // namespace refrain::server::access

#endif  // REFRAIN_SERVER_ACCESS_KEY_GATE_H_
