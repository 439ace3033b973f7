#ifndef REFRAIN_ENGINE_FAIR_SHARES_H_
#define REFRAIN_ENGINE_FAIR_SHARES_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"

namespace refrain::engine {

// How much of the engine each tenant (API key) has had: the tokens computed for it over its weight.
// The scheduler lets whoever has had least go first (start-time fair queueing, with the service
// itself as the clock).
//
// Who has not used the engine does not save that up: when a request comes, its tenant is put at
// most kMostLagTokens behind the time that the service has reached. That is what the least served
// has had of those that the last plan left lacking; where it left none, what the most served has
// had of those that have requests; where nobody has any, what the last had that did; and it never
// goes back. So a tenant comes first for so many tokens at the most, and after that takes turns.
// One that runs far ahead by rows that are never refused (decodes) puts nobody behind those that
// wait, and one that has all it asks for, however little, gives nobody credit.
//
// Integers only, no clock. One thread (the engine's); cannot fail. Tenants are never forgotten:
// there are as many as keys.
class FairShares {
 public:
  static constexpr int64_t kMostLagTokens = 8192;

  // A request of `tenant` came: its index from now on. The last weight given holds for all of them.
  int32_t Enter(const std::string& tenant, double weight);
  // It has ended.
  void Leave(int32_t index);
  // So many tokens are computed for it.
  void Charge(int32_t index, int64_t tokens);
  // A plan is carried out; by index, as many as competing(): who could have used more.
  void SetLacking(const std::vector<bool>& lacking);

  // By index; empty while fewer than two tenants have requests.
  const std::vector<TenantEntry>& competing() const { return active_ < 2 ? none_ : tenants_; }
  // TenantEntry::served of it once so many tokens more are computed for it.
  int64_t ServedAfter(int32_t index, int64_t tokens) const;

 private:
  void Advance();

  std::unordered_map<std::string, int32_t> indexes_;
  std::vector<TenantEntry> tenants_;
  std::vector<int64_t> requests_;  // by index
  std::vector<bool> lacking_;      // by index
  int64_t reached_ = 0;            // the time of the service, in units of TenantEntry::served
  int32_t active_ = 0;             // tenants with requests
  const std::vector<TenantEntry> none_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_FAIR_SHARES_H_
