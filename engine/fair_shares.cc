#include "engine/fair_shares.h"

#include <algorithm>
#include <cmath>

namespace refrain::engine {

int32_t FairShares::Enter(const std::string& tenant, double weight) {
  const auto [found, fresh] = indexes_.emplace(tenant, static_cast<int32_t>(tenants_.size()));
  const int32_t index = found->second;
  if (fresh) {
    tenants_.emplace_back();
    requests_.push_back(0);
  }
  TenantEntry& entry = tenants_[index];
  entry.weight_milli = static_cast<int32_t>(std::clamp(std::round(weight * 1000), 1.0, 1e6));
  if (requests_[index]++ == 0) ++active_;
  entry.has_requests = true;
  int64_t most_served = entry.served;
  for (size_t i = 0; i < tenants_.size(); ++i) {
    if (requests_[i] > 0) most_served = std::max(most_served, tenants_[i].served);
  }
  entry.served = std::max(entry.served, most_served - TenantEntry{}.CostOf(kMostLagTokens));
  return index;
}

void FairShares::Leave(int32_t index) {
  if (--requests_[index] > 0) return;
  tenants_[index].has_requests = false;
  --active_;
}

void FairShares::Charge(int32_t index, int64_t tokens) {
  tenants_[index].served += tenants_[index].CostOf(tokens);
}

}  // namespace refrain::engine
