#ifndef REFRAIN_ENGINE_TENANT_QUEUE_H_
#define REFRAIN_ENGINE_TENANT_QUEUE_H_

#include <deque>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace refrain::engine {

// Items of several tenants (API keys): taken in turns, one of each tenant that has any, and in
// order of arrival within one. So an item waits for at most one of every other tenant and for the
// earlier ones of its own, however many others have put in. No locks inside.
template <typename T>
class TenantQueue {
 public:
  void Push(std::string_view tenant, T item) {
    const auto [place, is_new] = lines_.try_emplace(std::string(tenant));
    if (is_new) place->second = turns_.insert(turns_.end(), {place->first, {}});
    place->second->items.push_back(std::move(item));
  }

  std::optional<T> Pop() {
    if (turns_.empty()) return std::nullopt;
    Line& line = turns_.front();
    std::optional<T> item(std::move(line.items.front()));
    line.items.pop_front();
    if (line.items.empty()) {
      lines_.erase(line.tenant);
      turns_.pop_front();
    } else {
      turns_.splice(turns_.end(), turns_, turns_.begin());
    }
    return item;
  }

  bool empty() const { return turns_.empty(); }

 private:
  struct Line {
    std::string tenant;
    std::deque<T> items;  // never empty between calls
  };

  std::list<Line> turns_;  // whose turn is next first
  std::unordered_map<std::string, typename std::list<Line>::iterator> lines_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TENANT_QUEUE_H_
