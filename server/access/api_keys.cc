#include "server/access/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/read_file.h"

namespace refrain::server::access {
namespace {

// Larger files are a mistake.
constexpr size_t kMaxFileBytes = 16 << 20;
constexpr std::string_view kPrefix = "rk-";
constexpr size_t kIdBytes = 4;
constexpr size_t kSecretBytes = 32;
constexpr size_t kSaltBytes = 16;
constexpr size_t kIdCharacters = kPrefix.size() + 2 * kIdBytes;
constexpr size_t kKeyCharacters = kIdCharacters + 1 + 2 * kSecretBytes;  // rk-ID-SECRET
constexpr size_t kMaxNameCharacters = 64;
constexpr double kLeastWeight = 0.001;
constexpr double kMostWeight = 1000;

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool FromHex(std::string_view text, KeyHash* bytes) {
  if (text.size() != 2 * bytes->size() || !IsHex(text)) return false;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i < bytes->size(); ++i) {
    (*bytes)[i] = static_cast<uint8_t>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
  }
  return true;
}

KeyHash HashOf(std::string_view salt, std::string_view key) {
  const std::string salted = Concat(salt, key);
  KeyHash hash{};
  unsigned int size = 0;
  if (EVP_Digest(salted.data(), salted.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1) {
    hash = {};
  }
  return hash;
}

// The part by which a key is found; "" when `key` cannot be one of ours.
std::string IdOf(std::string_view key) {
  if (key.size() != kKeyCharacters || !key.starts_with(kPrefix) || key[kIdCharacters] != '-') {
    return "";
  }
  return std::string(key.substr(0, kIdCharacters));
}

// Names stand in logs, metrics and namespaces.
bool IsGoodName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameCharacters &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.' || c == '@';
         });
}

absl::Status CheckTerms(std::string_view name, const KeyTerms& terms) {
  if (!IsGoodName(name)) {
    return absl::InvalidArgumentError(
        Concat("\"name\" must be 1 to ", kMaxNameCharacters, " letters, digits or any of -_.@"));
  }
  if (!(terms.weight >= kLeastWeight && terms.weight <= kMostWeight)) {
    return absl::InvalidArgumentError(Concat("\"weight\" is ", terms.weight, ", must be from ",
                                             kLeastWeight, " to ", kMostWeight));
  }
  if (terms.requests.has_value() && *terms.requests < 0) {
    return absl::InvalidArgumentError(
        Concat("\"requests\" is ", *terms.requests, ", must be at least 0"));
  }
  if (terms.tokens_per_s.has_value() && !(*terms.tokens_per_s >= 0 && *terms.tokens_per_s <= 1e9)) {
    return absl::InvalidArgumentError(
        Concat("\"tokens_per_s\" is ", *terms.tokens_per_s, ", must be from 0 to 1e9"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ApiKey> ParseLine(std::string_view line) {
  const absl::StatusOr<Json> object = ParseJson(line, {.max_depth = 2});
  if (!object.ok()) return object.status();
  if (!object->is_object()) return absl::InvalidArgumentError("must be a JSON object");
  ApiKey key;
  std::string hash;
  for (const auto& [name, value] : object->items()) {
    if (name == "name" && value.is_string()) {
      key.name = value.get<std::string>();
    } else if (name == "id" && value.is_string()) {
      key.id = value.get<std::string>();
    } else if (name == "salt" && value.is_string()) {
      key.salt = value.get<std::string>();
    } else if (name == "sha256" && value.is_string()) {
      hash = value.get<std::string>();
    } else if (name == "weight" && value.is_number()) {
      key.terms.weight = value.get<double>();
    } else if (name == "requests" && value.is_number_integer() &&
               value.get<int64_t>() <= std::numeric_limits<int32_t>::max()) {
      key.terms.requests = static_cast<int32_t>(std::max<int64_t>(-1, value.get<int64_t>()));
    } else if (name == "tokens_per_s" && value.is_number()) {
      key.terms.tokens_per_s = value.get<double>();
    } else {
      return absl::InvalidArgumentError(
          Concat("\"", name.substr(0, 64), "\" is unknown or not of its type"));
    }
  }
  if (absl::Status terms = CheckTerms(key.name, key.terms); !terms.ok()) return terms;
  if (key.id.size() != kIdCharacters || !key.id.starts_with(kPrefix)) {
    return absl::InvalidArgumentError(
        Concat("\"id\" must be the first ", kIdCharacters, " characters of the key"));
  }
  if (key.salt.empty()) return absl::InvalidArgumentError("\"salt\" is missing");
  if (!FromHex(hash, &key.hash)) {
    return absl::InvalidArgumentError("\"sha256\" must be 64 hexadecimal digits");
  }
  return key;
}

}  // namespace

absl::StatusOr<KeyRing> KeyRing::Parse(std::string_view text, std::string_view origin) {
  KeyRing ring;
  std::unordered_map<std::string, size_t> by_name;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const auto refuse = [&](std::string_view why) {
      return absl::InvalidArgumentError(Concat(origin, ": line ", number, ": ", why));
    };
    absl::StatusOr<ApiKey> key = ParseLine(line);
    if (!key.ok()) return refuse(Concat(key.status().message()));
    const auto [same_name, first] = by_name.emplace(key->name, ring.keys_.size());
    if (!first && ring.keys_[same_name->second].terms != key->terms) {
      return refuse(Concat("the keys of \"", key->name,
                           "\" must have the same weight, requests and tokens_per_s"));
    }
    if (!ring.by_id_.emplace(key->id, ring.keys_.size()).second) {
      return refuse(Concat("the id \"", key->id, "\" was there before"));
    }
    ring.keys_.push_back(*std::move(key));
  }
  return ring;
}

const ApiKey* KeyRing::FindOrNull(std::string_view key) const {
  const auto found = by_id_.find(IdOf(key));
  if (found == by_id_.end()) return nullptr;
  const ApiKey& candidate = keys_[found->second];
  const KeyHash hash = HashOf(candidate.salt, key);
  return CRYPTO_memcmp(hash.data(), candidate.hash.data(), hash.size()) == 0 ? &candidate : nullptr;
}

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  return ReadFile("the file of keys", path, kMaxFileBytes);
}

absl::StatusOr<NewKey> MakeKey(std::string_view name, const KeyTerms& terms) {
  if (absl::Status status = CheckTerms(name, terms); !status.ok()) return status;
  std::array<uint8_t, kIdBytes + kSecretBytes + kSaltBytes> random;
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) {
    return absl::InternalError("no randomness for a key");
  }
  const std::span<const uint8_t> bytes(random);
  const std::string id = Concat(kPrefix, Hex(bytes.first(kIdBytes)));
  const std::string salt = Hex(bytes.last(kSaltBytes));
  NewKey made;
  made.key = Concat(id, "-", Hex(bytes.subspan(kIdBytes, kSecretBytes)));
  made.line = Concat("{\"name\":\"", name, "\",\"id\":\"", id, "\",\"salt\":\"", salt,
                     "\",\"sha256\":\"", Hex(HashOf(salt, made.key)), "\"");
  if (terms.weight != 1) ConcatTo(&made.line, ",\"weight\":", terms.weight);
  if (terms.requests.has_value()) ConcatTo(&made.line, ",\"requests\":", *terms.requests);
  if (terms.tokens_per_s.has_value()) {
    ConcatTo(&made.line, ",\"tokens_per_s\":", *terms.tokens_per_s);
  }
  made.line += "}\n";
  return made;
}

}  // namespace refrain::server::access
