#include "engine/turn_memory.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

// Of a turn beside its ids: nodes, index entries, the control block of its ids.
constexpr size_t kTurnOverheadBytes = 256;
// More than a generation prompt, which all prompts of a template end with.
constexpr size_t kLastBytes = 32;

Digest DigestOf(const void* data, size_t size_bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, size_bytes);
  return {hash.low64, hash.high64};
}

}  // namespace

Digest DigestOf(std::string_view bytes) { return DigestOf(bytes.data(), bytes.size()); }

Digest DigestOf(std::span<const TokenId> ids) { return DigestOf(ids.data(), ids.size_bytes()); }

TextEnd TextEndOf(std::string_view text) {
  const std::string_view last = text.substr(text.size() - std::min(text.size(), kLastBytes));
  return {text.size(), XXH3_64bits(last.data(), last.size())};
}

std::string TurnScope(std::string_view tenant, std::string_view cache_salt) {
  // The size keeps two pairs with equal concatenations apart.
  return absl::StrCat(tenant.size(), ":", std::string(tenant), std::string(cache_salt));
}

size_t TurnMemory::BytesOf(const Node& node) {
  return node.turn.generated->size() * sizeof(TokenId) + node.scope.size() + kTurnOverheadBytes;
}

void TurnMemory::Remember(const TurnKey& prompt, std::span<const TokenId> generated) {
  if (generated.empty()) return;
  Node node{.tenant = nullptr,
            .scope = prompt.scope,
            .text = prompt.text,
            .end = prompt.end,
            .turn = {.prompt_ids = prompt.ids,
                     .generated = std::make_shared<const std::vector<TokenId>>(generated.begin(),
                                                                               generated.end())}};
  const size_t bytes = BytesOf(node);
  if (bytes > limits_.bytes || limits_.turns == 0) return;

  MutexLock lock(mutex_);
  Scope& scope = scopes_[node.scope];
  std::vector<Nodes::iterator>& turns = scope.prompts[node.text];
  for (const Nodes::iterator known : turns) {
    if (known->turn.prompt_ids == prompt.ids && *known->turn.generated == *node.turn.generated) {
      Use(known);
      return;
    }
  }
  Tenant& tenant = tenants_[prompt.tenant];
  if (tenant.nodes.empty()) tenant.name = prompt.tenant;
  node.tenant = &tenant;
  node.turn.number = next_number_++;
  bytes_ += bytes;
  tenant.bytes += bytes;
  ++scope.ends[node.end];
  tenant.nodes.push_back(std::move(node));
  const Nodes::iterator added = std::prev(tenant.nodes.end());
  turns.push_back(added);
  by_number_.emplace(added->turn.number, added);
  Use(added);
  if (turns.size() > limits_.turns_per_prompt) {
    Forget(*std::ranges::min_element(turns, {}, [](const auto& turn) { return turn->last_use; }));
  }
  while (by_number_.size() > limits_.turns || bytes_ > limits_.bytes) {
    Forget(by_rank_.begin()->second->nodes.begin());
  }
}

void TurnMemory::Use(Nodes::iterator node) {
  Nodes& nodes = node->tenant->nodes;
  nodes.splice(nodes.end(), nodes, node);
  node->last_use = ++uses_;
  RankAgain(node->tenant);
}

void TurnMemory::RankAgain(Tenant* tenant) {
  auto ranked = by_rank_.extract(tenant->rank);
  if (tenant->nodes.empty()) {
    tenants_.erase(tenants_.find(tenant->name));
    return;
  }
  const auto part_of = [](size_t taken, size_t limit) {
    return static_cast<double>(taken) / static_cast<double>(limit);
  };
  const double part =
      std::max(part_of(tenant->nodes.size(), limits_.turns), part_of(tenant->bytes, limits_.bytes));
  tenant->rank = {-part, tenant->nodes.front().last_use};
  if (ranked.empty()) {  // a new tenant
    by_rank_.emplace(tenant->rank, tenant);
    return;
  }
  ranked.key() = tenant->rank;  // without memory: whoever marks a turn as used may find none
  by_rank_.insert(std::move(ranked));
}

void TurnMemory::Forget(Nodes::iterator node) {
  const auto scope = scopes_.find(node->scope);
  const auto prompt = scope->second.prompts.find(node->text);
  std::vector<Nodes::iterator>& turns = prompt->second;
  turns.erase(std::find(turns.begin(), turns.end(), node));
  if (turns.empty()) scope->second.prompts.erase(prompt);
  const auto end = scope->second.ends.find(node->end);
  if (--end->second == 0) scope->second.ends.erase(end);
  if (scope->second.prompts.empty()) scopes_.erase(scope);
  by_number_.erase(node->turn.number);
  const size_t bytes = BytesOf(*node);
  bytes_ -= bytes;
  Tenant* const tenant = node->tenant;
  tenant->bytes -= bytes;
  tenant->nodes.erase(node);
  RankAgain(tenant);
}

std::vector<size_t> TurnMemory::PromptSizes(const std::string& scope, std::string_view text,
                                            std::span<const Window> windows) const {
  MutexLock lock(mutex_);
  std::vector<size_t> sizes;
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return sizes;
  const std::map<TextEnd, size_t>& ends = found->second.ends;
  TextEnd next{};  // all before were looked at
  TextEnd here{};
  for (const Window& window : windows) {
    next = std::max(next, TextEnd{window.least, 0});
    auto end = ends.lower_bound(next);
    for (; end != ends.end() && end->first.text_bytes <= window.most; ++end) {
      const size_t size = end->first.text_bytes;
      if (size > text.size()) return sizes;
      if (here.text_bytes != size) here = TextEndOf(text.substr(0, size));
      if (end->first == here) sizes.push_back(size);
    }
    if (end == ends.end()) break;
    next = end->first;
  }
  return sizes;
}

std::vector<TurnMemory::Turn> TurnMemory::Find(const std::string& scope, const Digest& text) const {
  MutexLock lock(mutex_);
  std::vector<Turn> turns;
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return turns;
  const auto prompt = found->second.prompts.find(text);
  if (prompt == found->second.prompts.end()) return turns;
  for (const Nodes::iterator node : prompt->second) turns.push_back(node->turn);
  return turns;
}

void TurnMemory::MarkUsed(const Turn& turn) {
  MutexLock lock(mutex_);
  const auto found = by_number_.find(turn.number);
  if (found != by_number_.end()) Use(found->second);
}

size_t TurnMemory::num_turns() const {
  MutexLock lock(mutex_);
  return by_number_.size();
}

size_t TurnMemory::num_bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace refrain::engine
