
#include "absl/strings/str_cat.h"
#include "kvcache/prefix_tree.h"

namespace refrain::kvcache {

absl::Status PrefixTree::CheckInvariants() const {
  const auto broken = [](NodeId id, auto&&... parts) {
    return absl::InternalError(
        absl::StrCat("prefix tree invariant: node ", static_cast<int32_t>(id), " ", parts...));
  };
  int32_t live = 0, full_nodes = 0, below_parents = 0;
  for (size_t i = 0; i < nodes_made_; ++i) {
    const NodeId id{static_cast<int32_t>(i)};
    const Node& at = node(id);
    if (!at.live) continue;
    for (size_t k = 0; k < at.children.size(); ++k) {
      const NodeId child = at.children[k];
      if (!node(child).live || node(child).parent != id)
        return broken(child, "has lost its parent");
      if (k == 0) continue;
      const NodeId before = at.children[k - 1];
      const int order = Compare(PieceOf(before), PieceOf(child));
      if (order > 0 || (order == 0 && before >= child)) return broken(child, "is out of order");
      if (order == 0 && IsFull(child)) return broken(child, "is full and equals a sibling");
      if (IsPrefix(PieceOf(before), PieceOf(child)) && !node(before).nested) {
        return broken(before, "is a prefix of a sibling and does not know");
      }
      if (order == 0 && !node(child).nested) return broken(child, "has an equal, does not know");
    }
    below_parents += static_cast<int32_t>(at.children.size());
    if (at.is_root()) continue;
    ++live;
    const Node& parent = node(at.parent);
    if (at.tokens < 1 || at.tokens > chunk_tokens_) return broken(id, "has ", at.tokens, " tokens");
    if (at.depth_tokens != parent.end_tokens() || at.depth_nodes != parent.depth_nodes + 1) {
      return broken(id, "does not begin where its parent ends");
    }
    if (!at.children.empty() && !IsFull(id)) return broken(id, "has children and is not full");
    if (!IsFull(id)) continue;
    ++full_nodes;
    const Piece own = PieceOf(id);
    if (FindHashed(at.parent, at.lineage_hash, own) != id) return broken(id, "is not found");
  }
  if (live != num_nodes_ || live != below_parents) {
    return absl::InternalError(absl::StrCat("prefix tree invariant: ", live, " nodes, ",
                                            below_parents, " children, ", num_nodes_, " counted"));
  }
  int32_t hashed = 0;
  for (const auto& [hash, first] : by_hash_) {
    for (NodeId id = first; id != kNoNode; id = node(id).next_of_hash) {
      if (!node(id).live || node(id).lineage_hash != hash) return broken(id, "is hashed wrongly");
      ++hashed;
    }
  }
  if (hashed != full_nodes) {
    return absl::InternalError(
        absl::StrCat("prefix tree invariant: ", full_nodes, " full nodes, ", hashed, " hashed"));
  }
  for (const auto& [root, name] : root_names_) {
    if (!node(root).live || !node(root).is_root()) return broken(root, "is no root any more");
  }
  for (const auto& [name, root] : roots_) {
    const auto named = root_names_.find(root);
    if (named == root_names_.end() || named->second != name) return broken(root, "has no name");
  }
  return absl::OkStatus();
}

}  // namespace refrain::kvcache
