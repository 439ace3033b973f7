#include "engine/grammar/object_rule.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "engine/grammar/other_names.h"
#include "engine/grammar/schema_value.h"
#include "engine/grammar/text_choice.h"

namespace refrain::engine {
namespace {

// Draws the names of properties that follow each other, from places at which the first, the second
// and so on of them are the first that may come.
class NameChoice {
 public:
  // names: as they are written, with quotes, so that none begins another.
  NameChoice(std::vector<std::string> names, std::vector<NodeId> from, GrammarBuilder* builder)
      : names_(std::move(names)), behind_(names_.size()), builder_(*builder) {
    Group all{.nodes = std::move(from)};
    for (size_t i = 0; i < names_.size(); ++i) all.members.push_back(i);
    groups_.push_back(std::move(all));
    while (!groups_.empty() && !builder_.is_full()) {
      const Group group = std::move(groups_.back());
      groups_.pop_back();
      Expand(group);
    }
  }

  // [names]: behind each of them; no more than begun when the builder is full.
  const std::vector<NodeId>& behind() const { return behind_; }

 private:
  // Names that begin with the same bytes.
  struct Group {
    size_t num_bytes = 0;         // so many
    std::vector<size_t> members;  // ascending
    std::vector<NodeId> nodes;    // [members]: where it and those behind it may go on
  };

  void Expand(const Group& group) {
    const RuleId rule = builder_.rule_of(group.nodes.front());
    if (group.members.size() == 1) {
      const size_t name = group.members.front();
      const auto rest = std::string_view(names_[name]).substr(group.num_bytes);
      behind_[name] = builder_.AddLiteral(group.nodes.front(), rest);
      return;
    }
    std::map<char, Group> by_byte;
    for (const size_t name : group.members) {
      Group& next = by_byte[names_[name][group.num_bytes]];
      next.num_bytes = group.num_bytes + 1;
      next.members.push_back(name);
      next.nodes.push_back(builder_.AddNode(rule));
    }
    for (auto& [c, next] : by_byte) {
      const auto byte = static_cast<uint8_t>(c);
      size_t first = 0;  // of those that may still come
      for (size_t i = 0; i < group.members.size(); ++i) {
        while (first < next.members.size() && next.members[first] < group.members[i]) ++first;
        if (first == next.members.size()) break;
        builder_.AddBytes(group.nodes[i], byte, byte, next.nodes[first]);
      }
      groups_.push_back(std::move(next));
    }
  }

  const std::vector<std::string> names_;
  std::vector<NodeId> behind_;
  std::vector<Group> groups_;
  GrammarBuilder& builder_;
};

class ObjectDrawing {
 public:
  ObjectDrawing(const ObjectRule& object, NodeId from, NodeId to, JsonRules* rules)
      : object_(object),
        properties_(object.properties),
        builder_(rules->builder()),
        rule_(builder_.rule_of(from)),
        space_(rules->Space()),
        close_(builder_.AddNode(rule_)) {
    for (size_t i = 0; i < properties_.size(); ++i) {
      if (properties_[i].is_required) num_to_last_required_ = i + 1;
    }
    const NodeId start = builder_.AddCalled(builder_.AddLiteral(from, "{"), space_);
    // Behind a comma an object does not end.
    begins_.push_back(builder_.AddNode(rule_));
    builder_.AddSkip(start, begins_.back());
    builder_.AddBytes(close_, '}', '}', to);
    const bool may_be_empty = object.is_empty_too && num_to_last_required_ == 0;
    if (may_be_empty) builder_.AddBytes(start, '}', '}', to);
  }

  void Draw() {
    const size_t num_places = properties_.size() + (object_.further ? 1 : 0);
    while (begins_.size() < num_places) begins_.push_back(builder_.AddNode(rule_));
    for (size_t begin = 0; begin < properties_.size() && !builder_.is_full();) {
      size_t end = begin;
      while (end < properties_.size() && !properties_[end++].is_required) continue;
      AddRun(begin, end);
      begin = end;
    }
    if (object_.further) AddFurther(*object_.further);
  }

 private:
  // Properties [begin, end), of which the last alone may be required.
  void AddRun(size_t begin, size_t end) {
    std::vector<std::string> names;
    for (size_t i = begin; i < end; ++i) names.push_back(JsonString(properties_[i].name));
    const auto first = begins_.begin() + static_cast<ptrdiff_t>(begin);
    const std::vector<NodeId> from(first, first + static_cast<ptrdiff_t>(end - begin));
    const NameChoice choice(std::move(names), from, &builder_);
    for (size_t i = begin; i < end && !builder_.is_full(); ++i) {
      const NodeId behind = AddValue(choice.behind()[i - begin], properties_[i].value);
      if (i + 1 >= num_to_last_required_) builder_.AddCall(behind, space_, close_);
      if (i + 1 < begins_.size()) AddComma(behind, begins_[i + 1]);
    }
  }

  void AddFurther(const ObjectRule::Further& further) {
    std::vector<std::string_view> taken = object_.absent;
    for (const ObjectRule::Property& property : properties_) taken.push_back(property.name);
    const RuleId name = further.name ? *further.name : AddOtherNames(taken, &builder_);
    const NodeId named = builder_.AddNode(rule_);
    for (size_t i = num_to_last_required_; i < begins_.size(); ++i) {
      builder_.AddCall(begins_[i], name, named);
    }
    const NodeId behind = AddValue(named, further.value);
    builder_.AddCall(behind, space_, close_);
    AddComma(behind, begins_.back());
  }

  // What follows the name: where the value ends.
  NodeId AddValue(NodeId from, const ObjectRule::Value& value) {
    const NodeId begin = builder_.AddCalled(builder_.AddLiteral(from, ":"), space_);
    if (value.rule) return builder_.AddCalled(begin, *value.rule);
    const NodeId end = builder_.AddNode(rule_);
    AddOneOf(value.texts, begin, end, &builder_);
    return end;
  }

  void AddComma(NodeId from, NodeId to) {
    builder_.AddCall(builder_.AddLiteral(from, ","), space_, to);
  }

  const ObjectRule& object_;
  const std::vector<ObjectRule::Property>& properties_;
  GrammarBuilder& builder_;
  const RuleId rule_;
  const RuleId space_;
  const NodeId close_;  // before `}`
  size_t num_to_last_required_ = 0;
  std::vector<NodeId> begins_;  // [i]: where property i is the first that may begin
};

}  // namespace

void AddObject(const ObjectRule& object, NodeId from, NodeId to, JsonRules* rules) {
  ObjectDrawing(object, from, to, rules).Draw();
}

}  // namespace refrain::engine
