#ifndef REFRAIN_SERVER_ACCESS_GATE_H_
#define REFRAIN_SERVER_ACCESS_GATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::engine {
struct Usage;
}

namespace refrain::server::access {

// What a route or method belongs to. Health belongs to none: it is asked without a key.
enum class Area : uint8_t {
  kInference,   // an API key opens it
  kAdmin,       // an administration key opens it
  kMonitoring,  // either does: metrics, version, the API's description
};

// Who calls, as far as the server can tell.
struct Principal {
  std::string key_name;  // "" where no key is asked for; the engine's tenant
  double weight = 1;     // of its share where keys compete
  // Whether it may read the names of other keys: not where there are administration keys and it is
  // none.
  bool sees_all_keys = true;
};

// A place among the requests its key may have at once; gives it back with Leave or when it goes.
// Move-only, one thread at a time.
class Ticket {
 public:
  class Account;

  Ticket() = default;
  explicit Ticket(std::shared_ptr<Account> account);
  // One that takes no place: it has left.
  static Ticket OfUsageAlone(std::shared_ptr<Account> account);
  Ticket(Ticket&& other) noexcept;
  Ticket& operator=(Ticket&& other) noexcept;
  ~Ticket();

  // What the request has used up to now: the tokens that were computed for it since the last call
  // are taken from its key's rate.
  void ChargeUsage(const engine::Usage& usage);

  // Gives the place back; usage can still be charged. To be called before the last bytes of an
  // answer are sent: who has read them may send the next request at once.
  void Leave();

 private:
  std::shared_ptr<Account> account_;
  bool left_ = false;
  int64_t charged_tokens_ = 0;
};

// Asks every caller, over HTTP or gRPC, for its key, and keeps each key within its limits.
// Any thread.
class Gate {
 public:
  virtual ~Gate() = default;

  // `authorization` is the header (gRPC: metadata) of that name, "" when absent. UNAUTHENTICATED
  // without a valid key, PERMISSION_DENIED for a valid key that does not open `area`; the messages
  // show no part of a key. Where no keys are configured everything but kAdmin is open, and kAdmin
  // too where no administration keys are configured either.
  virtual absl::StatusOr<Principal> Authenticate(Area area,
                                                 std::string_view authorization) const = 0;

  // Before a request is submitted to the engine. RESOURCE_EXHAUSTED names the limit and says when
  // to come back; UNAUTHENTICATED where the key has gone since.
  virtual absl::StatusOr<Ticket> Admit(const Principal& principal) = 0;

  // After it was submitted: UNAUTHENTICATED where the last key of that name has gone since, so late
  // that whoever ended what waited of the name did not see the request.
  virtual absl::Status StillHas(std::string_view /*key_name*/) const { return absl::OkStatus(); }

  // For what others have computed in the name of a key: it takes none of the key's places and is
  // never refused, but its tokens are the key's.
  virtual Ticket UsageOf(std::string_view /*key_name*/) { return Ticket(); }

  // The weight (Principal) of requests that come with a key of that name, "" of those that come
  // without one; absent where none can come now. Without keys all come without one.
  virtual std::optional<double> WeightOf(std::string_view key_name) const {
    return key_name.empty() ? std::optional<double>(Principal{}.weight) : std::nullopt;
  }
};

// The name of the key that Authenticate refused: a valid one, for another area. "" = none.
std::string RefusedKeyName(const absl::Status& status);
absl::Status WithKeyName(absl::Status status, std::string_view name);

// Asks for nothing, limits nothing.
std::unique_ptr<Gate> MakeOpenGate();

}  // namespace refrain::server::access

#endif  // REFRAIN_SERVER_ACCESS_GATE_H_
