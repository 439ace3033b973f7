#include "server/access/key_gate.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/access/key_account.h"
#include "server/concat.h"

namespace refrain::server::access {
namespace {

// `keys_before`: of that file, in use.
absl::StatusOr<KeyRing> ReadKeys(const std::string& path, size_t keys_before) {
  if (path.empty()) return KeyRing();
  const absl::StatusOr<std::string> text = ReadKeyFile(path);
  if (!text.ok()) return text.status();
  if (text->empty() && keys_before > 0) {
    return absl::FailedPreconditionError(
        Concat(path, ": is empty, and keys of it are in use (", keys_before,
               "): is it being written? A line with # says that there are to be none"));
  }
  return KeyRing::Parse(*text, path);
}

// The key of "Bearer KEY"; "" when it is not that.
std::string_view BearerOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return "";
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kScheme[i]) return "";
  }
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  while (authorization.ends_with(' ')) authorization.remove_suffix(1);
  return authorization;
}

}  // namespace

KeyGate::KeyGate(KeyGateOptions options) : options_(std::move(options)) {}
KeyGate::~KeyGate() = default;

absl::StatusOr<std::unique_ptr<KeyGate>> KeyGate::Load(KeyGateOptions options) {
  if (!options.now) options.now = [] { return std::chrono::steady_clock::now(); };
  std::unique_ptr<KeyGate> gate(new KeyGate(std::move(options)));
  if (const auto loaded = gate->Reload(); !loaded.ok()) return loaded.status();
  return gate;
}

absl::StatusOr<KeyGate::Rings> KeyGate::Read(const KeyCounts& before) const {
  absl::StatusOr<KeyRing> inference = ReadKeys(options_.keys_file, before.inference);
  if (!inference.ok()) return inference.status();
  absl::StatusOr<KeyRing> admin = ReadKeys(options_.admin_keys_file, before.admin);
  if (!admin.ok()) return admin.status();
  return Rings{.inference = *std::move(inference), .admin = *std::move(admin)};
}

absl::StatusOr<std::vector<std::string>> KeyGate::Reload() {
  absl::StatusOr<Rings> read = Read(num_keys());
  if (!read.ok()) return read.status();
  auto rings = std::make_shared<const Rings>(*std::move(read));
  MutexLock lock(mutex_);
  std::set<std::string> removed;
  for (auto& [name, account] : accounts_) {
    if (std::exchange(account.has_key, false)) removed.insert(name);
  }
  for (const ApiKey& key : rings->inference.keys()) {
    Account& account = accounts_[key.name];
    if (account.uses == nullptr) {
      account.uses = std::make_shared<KeyAccount>(key.name, options_.now);
    }
    account.uses->SetLimits(
        {.requests = key.terms.requests.value_or(options_.requests),
         .tokens_per_s = key.terms.tokens_per_s.value_or(options_.tokens_per_s)});
    account.has_key = true;
    removed.erase(key.name);
  }
  rings_ = std::move(rings);
  return std::vector<std::string>(removed.begin(), removed.end());
}

std::shared_ptr<const KeyGate::Rings> KeyGate::rings() const {
  MutexLock lock(mutex_);
  return rings_;
}

KeyCounts KeyGate::num_keys() const {
  const auto rings = this->rings();
  if (rings == nullptr) return {};  // nothing was read yet
  return {.inference = rings->inference.keys().size(), .admin = rings->admin.keys().size()};
}

absl::StatusOr<Principal> KeyGate::Authenticate(Area area, std::string_view authorization) const {
  const bool any_keys = !options_.keys_file.empty();
  const bool any_admin_keys = !options_.admin_keys_file.empty();
  const bool open = area == Area::kAdmin ? !any_keys && !any_admin_keys : !any_keys;
  const std::string_view presented = BearerOf(authorization);
  const auto rings = this->rings();
  const ApiKey* const admin_key = rings->admin.FindOrNull(presented);
  const bool sees_all_keys = !any_admin_keys || admin_key != nullptr;
  if (open) return Principal{.sees_all_keys = sees_all_keys};
  if (authorization.empty()) {
    return absl::UnauthenticatedError(
        "no API key was given: send it in the header 'Authorization: Bearer KEY'");
  }
  const ApiKey* const key = rings->inference.FindOrNull(presented);
  if (key == nullptr && admin_key == nullptr) {
    return absl::UnauthenticatedError("the API key is not valid");
  }
  if (area == Area::kAdmin && admin_key == nullptr) {
    return WithKeyName(absl::PermissionDeniedError("this needs an administration key"), key->name);
  }
  if (area == Area::kInference && key == nullptr) {
    return WithKeyName(absl::PermissionDeniedError("an administration key does not open this"),
                       admin_key->name);
  }
  const ApiKey& opening = key != nullptr && area != Area::kAdmin ? *key : *admin_key;
  return Principal{
      .key_name = opening.name, .weight = opening.terms.weight, .sees_all_keys = sees_all_keys};
}

std::optional<double> KeyGate::WeightOf(std::string_view key_name) const {
  if (options_.keys_file.empty()) return Gate::WeightOf(key_name);
  const auto rings = this->rings();
  const auto key = std::ranges::find(rings->inference.keys(), key_name, &ApiKey::name);
  if (key == rings->inference.keys().end()) return std::nullopt;
  return key->terms.weight;  // all of a name have the same
}

KeyGate::Account KeyGate::AccountOf(std::string_view key_name) const {
  MutexLock lock(mutex_);
  const auto found = accounts_.find(key_name);
  return found == accounts_.end() ? Account() : found->second;
}

absl::StatusOr<Ticket> KeyGate::Admit(const Principal& principal) {
  Account account = AccountOf(principal.key_name);
  if (account.uses == nullptr) return Ticket();  // no key was asked for
  if (!account.has_key) return KeyRemoved();
  if (absl::Status status = account.uses->Enter(); !status.ok()) return status;
  return Ticket(std::move(account.uses));
}

absl::Status KeyGate::StillHas(std::string_view key_name) const {
  const Account account = AccountOf(key_name);
  return account.uses == nullptr || account.has_key ? absl::OkStatus() : KeyRemoved();
}

Ticket KeyGate::UsageOf(std::string_view key_name) {
  return Ticket::OfUsageAlone(AccountOf(key_name).uses);
}

absl::Status KeyRemoved() {
  return absl::UnauthenticatedError("the API key was removed while the request waited");
}

}  // namespace refrain::server::access
