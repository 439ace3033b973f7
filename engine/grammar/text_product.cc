#include "engine/grammar/text_product.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "engine/grammar/text_automaton.h"

namespace refrain::engine {
namespace {

// Where in a character of a JSON string the text stands. A pair of surrogates is one character,
// which is counted with the first of them.
enum class Within : uint8_t {
  kNone,
  kBackslash,
  kCode,         // behind `\u`
  kCodeAfterD,   // behind `\uD`: of surrogates, or not
  kSecondDigit,  // behind `\u` and another digit
  kThirdDigit,
  kFourthDigit,
};

struct Step {
  Within within;
  bool is_character;  // another one begins

  friend bool operator==(const Step&, const Step&) = default;
};

bool IsLowSurrogate(uint8_t second_digit) {
  return (second_digit >= 'C' && second_digit <= 'F') ||
         (second_digit >= 'c' && second_digit <= 'f');
}

Step StepOver(Within within, uint8_t byte) {
  switch (within) {
    case Within::kNone:
      if (byte == '\\') return {Within::kBackslash, false};
      return {Within::kNone, byte < 0x80 || byte >= 0xC0};
    case Within::kBackslash:
      if (byte == 'u') return {Within::kCode, false};
      return {Within::kNone, true};
    case Within::kCode:
      if (byte == 'D' || byte == 'd') return {Within::kCodeAfterD, false};
      return {Within::kSecondDigit, true};
    case Within::kCodeAfterD:
      return {Within::kThirdDigit, !IsLowSurrogate(byte)};
    case Within::kSecondDigit:
      return {Within::kThirdDigit, false};
    case Within::kThirdDigit:
      return {Within::kFourthDigit, false};
    case Within::kFourthDigit:
      return {Within::kNone, false};
  }
  return {within, false};
}

// Where a text stands in everything at once.
struct Place {
  std::vector<TextAutomaton::State> all_of;
  std::vector<std::optional<TextAutomaton::State>> none_of;  // nothing: it is none of these
  Within within = Within::kNone;
  int num_characters = 0;  // cut where more make no difference

  friend auto operator<=>(const Place&, const Place&) = default;
};

class ProductDrawing {
 public:
  ProductDrawing(TextProduct product, GrammarBuilder* builder)
      : min_(product.min_characters), max_(product.max_characters), builder_(*builder) {
    for (Grammar& grammar : product.all_of) all_of_.emplace_back(std::move(grammar));
    for (Grammar& grammar : product.none_of) none_of_.emplace_back(std::move(grammar));
  }

  absl::Status Draw(NodeId from, NodeId to) {
    Place start;
    for (const TextAutomaton& automaton : all_of_) start.all_of.push_back(automaton.start());
    for (const TextAutomaton& automaton : none_of_) start.none_of.emplace_back(automaton.start());
    NodeOf(std::move(start), from);
    bool has_end = false;
    while (!left_.empty() && !builder_.is_full() && !IsOverrun()) {
      const auto [place, node] = *left_.back();
      left_.pop_back();
      if (CanEnd(place)) {
        builder_.AddSkip(node, to);
        has_end = true;
      }
      const auto [twin, is_first] = twins_.try_emplace(TwinOf(place), node);
      if (!is_first) builder_.SetTwin(node, twin->second);
      AddBytes(node, place);
    }
    if (IsOverrun()) {
      return absl::InvalidArgumentError("is too ambiguous to be held to lengths or other patterns");
    }
    if (has_end || builder_.is_full()) return absl::OkStatus();
    return absl::NotFoundError("allows no string: no length that is left fits its pattern");
  }

 private:
  using Found = std::map<Place, NodeId>::iterator;

  NodeId NodeOf(Place place, NodeId beside) {
    const auto known = nodes_.find(place);
    if (known != nodes_.end()) return known->second;
    const NodeId node = nodes_.empty() ? beside : builder_.AddNode(builder_.rule_of(beside));
    left_.push_back(nodes_.emplace(std::move(place), node).first);
    return node;
  }

  // What a twin tells of a place: a character is a byte at least, so that bounds further away than
  // its bytes are all the same.
  Place TwinOf(Place place) const {
    constexpr int kFar = Grammar::kTwinBytes + 1;
    const int missing = std::clamp(min_ - place.num_characters, 0, kFar);
    const int left = max_ ? std::min(*max_ - place.num_characters, kFar) : kFar;
    place.num_characters = missing * (kFar + 1) + left;
    return place;
  }

  // One edge for bytes in a row that lead to the same place.
  void AddBytes(NodeId node, const Place& place) {
    std::vector<const int32_t*> rows;
    for (size_t i = 0; i < all_of_.size(); ++i) {
      rows.push_back(all_of_[i].Row(place.all_of[i]).data());
    }
    for (size_t i = 0; i < none_of_.size(); ++i) {
      if (place.none_of[i]) rows.push_back(none_of_[i].Row(*place.none_of[i]).data());
    }
    const auto are_alike = [&](int a, int b) {
      const Step of_a = StepOver(place.within, static_cast<uint8_t>(a));
      return of_a == StepOver(place.within, static_cast<uint8_t>(b)) &&
             std::ranges::all_of(rows, [&](const int32_t* row) { return row[a] == row[b]; });
    };
    for (int first = 0, end = 0; first < 256; first = end) {
      for (end = first + 1; end < 256 && are_alike(first, end); ++end) continue;
      std::optional<Place> next = Next(place, static_cast<uint8_t>(first));
      if (!next) continue;
      builder_.AddBytes(node, static_cast<uint8_t>(first), static_cast<uint8_t>(end - 1),
                        NodeOf(*std::move(next), node));
    }
  }

  std::optional<Place> Next(const Place& place, uint8_t byte) {
    Place next;
    for (size_t i = 0; i < all_of_.size(); ++i) {
      const auto state = all_of_[i].Next(place.all_of[i], byte);
      if (!state) return std::nullopt;
      next.all_of.push_back(*state);
    }
    const Step step = StepOver(place.within, byte);
    if (step.within == Within::kCode && !none_of_.empty()) return std::nullopt;
    next.within = step.within;
    next.num_characters = place.num_characters + (step.is_character ? 1 : 0);
    if (max_ && next.num_characters > *max_) return std::nullopt;
    if (!max_) next.num_characters = std::min(next.num_characters, min_);
    for (size_t i = 0; i < none_of_.size(); ++i) {
      const auto& state = place.none_of[i];
      next.none_of.push_back(state ? none_of_[i].Next(*state, byte) : std::nullopt);
    }
    return next;
  }

  bool CanEnd(const Place& place) const {
    if (place.num_characters < min_) return false;
    for (size_t i = 0; i < all_of_.size(); ++i) {
      if (!all_of_[i].accepts(place.all_of[i])) return false;
    }
    for (size_t i = 0; i < none_of_.size(); ++i) {
      if (place.none_of[i] && none_of_[i].accepts(*place.none_of[i])) return false;
    }
    return true;
  }

  bool IsOverrun() const {
    const auto is_overrun = [](const TextAutomaton& one) { return one.is_overrun(); };
    return std::ranges::any_of(all_of_, is_overrun) || std::ranges::any_of(none_of_, is_overrun);
  }

  std::vector<TextAutomaton> all_of_, none_of_;
  const int min_;
  const std::optional<int> max_;
  GrammarBuilder& builder_;
  std::map<Place, NodeId> nodes_;
  std::map<Place, NodeId> twins_;  // of places whose characters are not counted, but TwinOf
  std::vector<Found> left_;        // to be drawn
};

}  // namespace

absl::Status AddTextProduct(TextProduct product, NodeId from, NodeId to, GrammarBuilder* builder) {
  return ProductDrawing(std::move(product), builder).Draw(from, to);
}

}  // namespace refrain::engine
