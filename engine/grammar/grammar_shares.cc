#include "engine/grammar/grammar_shares.h"

#include <algorithm>
#include <cmath>

namespace refrain::engine {

std::optional<double> GrammarShares::SecondsUntilShare(const std::string& tenant) const {
  const MutexLock lock(mutex_);
  const auto found = by_tenant_.find(tenant);
  const size_t own = found != by_tenant_.end() ? found->second : 0;
  if (own + bytes_ < most_bytes_) return std::nullopt;
  // A grammar that goes takes its bytes from the sum of all, and once more where it is the tenant's
  // own. They go as they are mixed, and are of a middle size.
  const size_t both = own + bytes_;
  const double excess = static_cast<double>(both - most_bytes_ + 1);
  const double part = both > 0 ? excess / static_cast<double>(both) : 1;
  const auto grammars = static_cast<int64_t>(std::ceil(part * static_cast<double>(grammars_)));
  return gone_.SecondsFor(Now(), std::max<int64_t>(grammars, 1));
}

void GrammarShares::Add(const std::string& tenant, size_t bytes) {
  const MutexLock lock(mutex_);
  const bool was_crowded = IsCrowded();
  by_tenant_[tenant] += bytes;  // first: it may find no memory
  bytes_ += bytes;
  ++grammars_;
  if (!was_crowded && IsCrowded()) gone_.Begin(Now());
}

void GrammarShares::Subtract(const std::string& tenant, size_t bytes) {
  const MutexLock lock(mutex_);
  if (IsCrowded()) gone_.Add(Now(), 1);
  bytes_ -= bytes;
  --grammars_;
  const auto found = by_tenant_.find(tenant);
  if ((found->second -= bytes) == 0) by_tenant_.erase(found);
}

size_t GrammarShares::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

Clock::TimePoint GrammarShares::Now() const {
  return clock_ != nullptr ? clock_->Now() : std::chrono::steady_clock::now();
}

}  // namespace refrain::engine
