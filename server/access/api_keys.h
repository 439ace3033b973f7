#ifndef REFRAIN_SERVER_ACCESS_API_KEYS_H_
#define REFRAIN_SERVER_ACCESS_API_KEYS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

namespace refrain::server::access {

using KeyHash = std::array<uint8_t, 32>;  // SHA-256

// What the keys of one name may do. Absent: the configuration's limits.* hold.
struct KeyTerms {
  double weight = 1;                   // of its share where names compete, 0.001 to 1000
  std::optional<int32_t> requests;     // at once; 0 = no limit
  std::optional<double> tokens_per_s;  // 0 = no limit
  friend bool operator==(const KeyTerms&, const KeyTerms&) = default;
};

// One key as a file holds it: enough to recognise the key, not to know it.
struct ApiKey {
  std::string name;  // whose it is; several keys may have it, so that one can replace another
  std::string id;    // the key's first characters, which are public: how it is found
  std::string salt;
  KeyHash hash{};  // SHA-256(salt + key)
  KeyTerms terms;
};

// The keys of one file. Immutable, so any thread.
//
// A file has one JSON object a line; blank lines and lines that start with '#' are skipped:
//   {"name":"team-a","id":"rk-4f9d01c2","salt":"...","sha256":"...","weight":2,"requests":8}
//
// Why one round of SHA-256 and not a slow hash such as bcrypt: keys are made by MakeKey alone and
// hold 256 random bits, so there is nothing to guess offline, and a slow hash on every request
// would be a way to overload the server. The salt makes equal keys in two files look different.
class KeyRing {
 public:
  // INVALID_ARGUMENT names `origin`, the line and what is wrong with it.
  static absl::StatusOr<KeyRing> Parse(std::string_view text, std::string_view origin);

  // Null when the key is not in the ring. How long it takes depends on the public part of `key`
  // only, not on how much of the rest is right.
  const ApiKey* FindOrNull(std::string_view key) const;

  const std::vector<ApiKey>& keys() const { return keys_; }

 private:
  std::vector<ApiKey> keys_;
  std::unordered_map<std::string, size_t> by_id_;  // into keys_
};

// NOT_FOUND where there is no such file, UNAVAILABLE where it cannot be read, INVALID_ARGUMENT
// where it is too large to be one.
absl::StatusOr<std::string> ReadKeyFile(const std::string& path);

struct NewKey {
  std::string key;   // shown once, to whom it is for
  std::string line;  // for the file, with its line break
};

// A fresh key. INVALID_ARGUMENT for a name or terms that Parse would refuse; INTERNAL when the
// system has no randomness.
absl::StatusOr<NewKey> MakeKey(std::string_view name, const KeyTerms& terms);

}  // namespace refrain::server::access

#endif  // REFRAIN_SERVER_ACCESS_API_KEYS_H_
