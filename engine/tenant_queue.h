#ifndef REFRAIN_ENGINE_TENANT_QUEUE_H_
#define REFRAIN_ENGINE_TENANT_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace refrain::engine {

// Items of several tenants (API keys): taken in turns, one of each tenant that has any, and in
// order of arrival within one. So an item waits for at most one of every other tenant and for the
// earlier ones of its own, however many others have put in. A Push that gets no memory changes
// nothing, and leaves the item where it is. No locks inside.
template <typename T>
class TenantQueue {
 public:
  template <typename Item>
  void Push(std::string_view tenant, Item&& item) {
    std::list<Line> line;
    line.push_back({std::string(tenant), {}});
    const auto [known, is_new] = lines_.try_emplace(line.front().tenant, line.begin());
    try {
      known->second->items.push_back(std::forward<Item>(item));  // moves once it has the room
    } catch (...) {
      if (is_new) lines_.erase(known);
      throw;
    }
    if (is_new) turns_.splice(turns_.end(), line);
    ++size_;
  }

  std::optional<T> Pop() {
    return PopIf([](const std::string&, const T&) { return true; });
  }

  // Of the first tenant in turn that has one, the first item of which `condition` (tenant, item) is
  // true: others are passed over, and keep their places.
  template <typename Condition>
  std::optional<T> PopIf(Condition condition) {
    for (auto line = turns_.begin(); line != turns_.end(); ++line) {
      std::deque<T>& items = line->items;
      const auto found = std::find_if(items.begin(), items.end(), [&](const T& item) {
        return condition(std::as_const(line->tenant), item);
      });
      if (found == items.end()) continue;
      std::optional<T> item(std::move(*found));
      items.erase(found);
      --size_;
      if (items.empty()) {
        Drop(line);
      } else {
        turns_.splice(turns_.end(), turns_, line);
      }
      return item;
    }
    return std::nullopt;
  }

  // Takes out the first of which `condition` is true; the order of the others stays. Needs no
  // memory. False: there is none.
  template <typename Condition>
  bool Remove(Condition condition) {
    for (auto line = turns_.begin(); line != turns_.end(); ++line) {
      const auto found = std::find_if(line->items.begin(), line->items.end(), condition);
      if (found == line->items.end()) continue;
      line->items.erase(found);
      --size_;
      if (line->items.empty()) Drop(line);
      return true;
    }
    return false;
  }

  // Takes out those of which `condition` is true; the order of the others stays.
  template <typename Condition>
  std::vector<T> TakeIf(Condition condition) {
    std::vector<T> taken;
    for (auto line = turns_.begin(); line != turns_.end();) {
      std::deque<T>& items = line->items;
      const auto kept_end = std::stable_partition(items.begin(), items.end(),
                                                  [&](const T& item) { return !condition(item); });
      std::move(kept_end, items.end(), std::back_inserter(taken));
      items.erase(kept_end, items.end());
      if (items.empty()) {
        line = Drop(line);
      } else {
        ++line;
      }
    }
    size_ -= taken.size();
    return taken;
  }

  bool empty() const { return turns_.empty(); }
  size_t size() const { return size_; }

 private:
  struct Line {
    std::string tenant;
    std::deque<T> items;  // never empty between calls
  };

  typename std::list<Line>::iterator Drop(typename std::list<Line>::iterator line) {
    lines_.erase(line->tenant);
    return turns_.erase(line);
  }

  size_t size_ = 0;
  std::list<Line> turns_;  // whose turn is next first
  std::unordered_map<std::string, typename std::list<Line>::iterator> lines_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TENANT_QUEUE_H_
