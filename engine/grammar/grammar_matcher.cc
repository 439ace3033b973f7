#include "engine/grammar/grammar_matcher.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace refrain::engine {

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                               std::shared_ptr<MaskStore> masks)
    : grammar_(std::move(grammar)), masks_(std::move(masks)) {
  at_.places = {Place{grammar_->start(grammar_->root()), kNobody}};
  mover_.Close(*grammar_, &frames_, &at_);
}

bool GrammarMatcher::Accept(std::string_view bytes) {
  PlaceSet next = at_, from;
  for (const char byte : bytes) {
    std::swap(from, next);
    mover_.Step(*grammar_, &frames_, from.places, static_cast<uint8_t>(byte), &next);
    if (next.overrun) at_ = next;
    if (next.is_dead()) return false;
  }
  if (at_.overrun) return false;
  at_ = std::move(next);
  if (frames_.size() >= forget_at_) ForgetFrames();
  return true;
}

bool GrammarMatcher::AcceptToken(kvcache::TokenId token) {
  const std::string_view bytes = masks_->trie().BytesOf(token);
  return !bytes.empty() && Accept(bytes);
}

void GrammarMatcher::FindAllowed(TokenSet* allowed) {
  allowed->Clear();
  if (AddAllowed(allowed)) return;
  allowed->Clear();
  at_ = {.places = {}, .ended = false, .overrun = true};
}

bool GrammarMatcher::AddAllowed(TokenSet* allowed) const {
  uint64_t masks_work = 0;
  std::vector<Place> callers;
  PlaceWalk walk(grammar_.get(), &masks_->trie(), &frames_);
  for (size_t begin = 0, end = 0; begin < at_.places.size(); begin = end) {
    const StateId state = at_.places[begin].state;
    callers.clear();
    for (; end < at_.places.size() && at_.places[end].state == state; ++end) {
      if (at_.places[end].frame == kNobody) continue;  // nothing may follow
      const FrameArena::Frame frame = frames_.at(at_.places[end].frame);
      callers.push_back({frame.back, frame.below});
    }
    const std::shared_ptr<const StateMask> mask = masks_->Find(*grammar_, state);
    mask->AddTo(allowed);
    masks_work += mask->work;
    if (callers.empty() || mask->ends.empty()) {
      // nobody goes on
    } else if (mask->nodes_below_ends <= masks_->many_nodes()) {
      AddBehind(*mask, callers, &walk, allowed);
    } else {
      // A rule of next to nothing, as one character of a string that is counted: what follows it is
      // most of the vocabulary, and the same for each caller of one twin.
      for (const Place& caller : callers) {
        const auto called = masks_->Find(*grammar_, state, caller.state);
        called->AddTo(allowed);
        masks_work += called->work;
        if (caller.frame == kNobody || called->ends.empty()) continue;
        const FrameArena::Frame frame = frames_.at(caller.frame);
        AddBehind(*called, {{Place{frame.back, frame.below}}}, &walk, allowed);
      }
    }
    if (masks_work + walk.work() > kMostWork) return false;
  }
  return true;
}

void GrammarMatcher::AddBehind(const StateMask& mask, const std::vector<Place>& callers,
                               PlaceWalk* walk, TokenSet* allowed) {
  walk->StartFrom(callers);
  for (const uint32_t node : mask.ends) walk->AddAllowed(node, allowed, nullptr);
}

void GrammarMatcher::ForgetFrames() {
  frames_.KeepOnly(at_.places);
  forget_at_ = std::max(kFewFrames, 2 * frames_.size());
}

}  // namespace refrain::engine
