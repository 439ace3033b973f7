#include "engine/text/special_token_matcher.h"

#include <algorithm>

namespace refrain::engine {

SpecialTokenMatcher::SpecialTokenMatcher() : nodes_(1) { root_children_.fill(-1); }

int32_t SpecialTokenMatcher::FindChild(int32_t node, uint8_t byte) const {
  if (node == 0) return root_children_[byte];
  int32_t child = nodes_[node].first_child;
  while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

void SpecialTokenMatcher::Add(std::string_view text, kvcache::TokenId id, Scope scope) {
  if (text.empty()) return;
  int32_t node = 0;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    int32_t child = FindChild(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child, .byte = byte});
      nodes_[node].first_child = child;
      if (node == 0) root_children_[byte] = child;
    }
    node = child;
  }
  nodes_[node].token = static_cast<int32_t>(id);
  nodes_[node].scope = scope;
}

std::optional<SpecialTokenMatcher::Match> SpecialTokenMatcher::FindNext(
    std::string_view text, size_t from_byte, bool parse_special,
    std::span<const TextSpan> plain_spans) const {
  if (nodes_.size() == 1) return std::nullopt;
  // The first plain span that ends behind the place looked at.
  auto span = std::partition_point(
      plain_spans.begin(), plain_spans.end(),
      [from_byte](const TextSpan& plain) { return plain.end_byte <= from_byte; });
  for (size_t begin = from_byte; begin < text.size(); ++begin) {
    int32_t node = root_children_[static_cast<uint8_t>(text[begin])];
    if (node < 0) continue;
    while (span != plain_spans.end() && span->end_byte <= begin) ++span;
    const size_t plain_begin = span == plain_spans.end() ? text.size() : span->begin_byte;
    std::optional<Match> longest;
    for (size_t end = begin + 1;; ++end) {
      const Scope scope = nodes_[node].scope;
      const bool allowed =
          scope == Scope::kAlways ||
          (end <= plain_begin && (parse_special || scope == Scope::kOutsidePlainSpans));
      if (nodes_[node].token >= 0 && allowed) {
        longest = Match{begin, end, kvcache::TokenId{nodes_[node].token}};
      }
      if (end == text.size()) break;
      node = FindChild(node, static_cast<uint8_t>(text[end]));
      if (node < 0) break;
    }
    if (longest.has_value()) return longest;
  }
  return std::nullopt;
}

std::optional<kvcache::TokenId> SpecialTokenMatcher::FindExact(std::string_view text) const {
  int32_t node = 0;
  for (const char c : text) {
    node = FindChild(node, static_cast<uint8_t>(c));
    if (node < 0) return std::nullopt;
  }
  if (nodes_[node].token < 0) return std::nullopt;
  return kvcache::TokenId{nodes_[node].token};
}

}  // namespace refrain::engine
