#include "engine/fair_shares.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace refrain::engine {

int32_t FairShares::Enter(const std::string& tenant, double weight) {
  const auto [found, fresh] = indexes_.emplace(tenant, static_cast<int32_t>(tenants_.size()));
  const int32_t index = found->second;
  if (fresh) {
    tenants_.emplace_back();
    requests_.push_back(0);
    lacking_.push_back(false);
  }
  Advance();
  TenantEntry& entry = tenants_[index];
  entry.weight_milli = static_cast<int32_t>(std::clamp(std::round(weight * 1000), 1.0, 1e6));
  if (requests_[index]++ == 0) ++active_;
  entry.has_requests = true;
  entry.served = std::max(entry.served, reached_ - TenantEntry{}.CostOf(kMostLagTokens));
  return index;
}

void FairShares::Leave(int32_t index) {
  // What it had counts though it goes: while it was alone, SetLacking was not called.
  if (requests_[index] == 1) Advance();
  if (--requests_[index] > 0) return;
  tenants_[index].has_requests = false;
  lacking_[index] = false;
  --active_;
}

void FairShares::Charge(int32_t index, int64_t tokens) {
  tenants_[index].served += tenants_[index].CostOf(tokens);
}

int64_t FairShares::ServedAfter(int32_t index, int64_t tokens) const {
  return tenants_[index].served + tenants_[index].CostOf(tokens);
}

void FairShares::SetLacking(const std::vector<bool>& lacking) {
  lacking_ = lacking;
  Advance();
}

void FairShares::Advance() {
  std::optional<int64_t> least_lacking;
  int64_t most = 0;
  for (size_t i = 0; i < tenants_.size(); ++i) {
    if (requests_[i] == 0) continue;
    const int64_t served = tenants_[i].served;
    most = std::max(most, served);
    if (lacking_[i]) least_lacking = std::min(least_lacking.value_or(served), served);
  }
  reached_ = std::max(reached_, least_lacking.value_or(most));
}

}  // namespace refrain::engine
