#include "engine/grammar/text_choice.h"

#include <algorithm>
#include <cstdint>

namespace refrain::engine {

void AddOneOf(std::vector<std::string> texts, NodeId from, NodeId to, GrammarBuilder* builder) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const RuleId rule = builder->rule_of(from);
  std::vector<NodeId> path = {from};  // [i]: behind i bytes of `last`
  const std::string* last = nullptr;
  for (const std::string& text : texts) {
    if (builder->is_full()) return;
    size_t shared = 0;
    if (last != nullptr) {
      const auto differ = std::mismatch(last->begin(), last->end(), text.begin(), text.end());
      shared = static_cast<size_t>(differ.second - text.begin());
    }
    path.resize(shared + 1);
    for (size_t i = shared; i < text.size(); ++i) {
      path.push_back(builder->AddNode(rule));
      const auto byte = static_cast<uint8_t>(text[i]);
      builder->AddBytes(path[i], byte, byte, path.back());
    }
    builder->AddSkip(path.back(), to);
    last = &text;
  }
}

}  // namespace refrain::engine
