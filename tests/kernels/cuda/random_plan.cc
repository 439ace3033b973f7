#include "tests/kernels/cuda/random_plan.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace refrain::kernels {

RandomPlan::RandomPlan(const Limits& limits, uint32_t seed)
    : limits_(limits), random_(seed + 1), chunks_(limits.num_chunks), sequences_(limits.num_slots) {
  free_.resize(limits.num_chunks);
  std::iota(free_.begin(), free_.end(), 0);
  std::shuffle(free_.begin(), free_.end(), random_);
  // Modules: two of them, never given back.
  for (int i = 0; i < 2; ++i) {
    Sequence module;
    Append(module, 1 + Random(3 * limits.chunk_tokens), 1e9);
    modules_.push_back(module.pieces);
    for (const Piece& piece : module.pieces) chunks_[piece.chunk].rank += 1e6 * (i + 1);
  }
  steps_.resize(limits.num_slots);
  MakePlan();
}

int RandomPlan::num_sequences() const {
  return static_cast<int>(
      std::ranges::count_if(sequences_, [](const Sequence& s) { return !s.pieces.empty(); }));
}

void RandomPlan::JoinOrLeave() {
  Sequence& sequence = sequences_[Random(limits_.num_slots)];
  if (!sequence.pieces.empty()) {
    Leave(sequence);
  } else if (std::ssize(free_) > 4 * limits_.max_join_chunks) {
    Join(sequence);
  }
  MakePlan();
}

void RandomPlan::Read(Sequence& sequence, int32_t chunk, int tokens) {
  ++chunks_[chunk].readers;
  sequence.pieces.push_back({chunk, tokens});
  sequence.keys += tokens;
}

// New keys at the sequence's end, in new chunks where its last one is full or not its own. False
// without room.
bool RandomPlan::Append(Sequence& sequence, int tokens, double rank_below) {
  for (int i = 0; i < tokens; ++i) {
    if (!sequence.owns_last ||
        chunks_[sequence.pieces.back().chunk].tokens == limits_.chunk_tokens) {
      if (free_.empty()) return false;
      const int32_t chunk = free_.back();
      free_.pop_back();
      const double last = sequence.pieces.empty() ? 0 : chunks_[sequence.pieces.back().chunk].rank;
      const double rank =
          rank_below < 1e9 ? (last + rank_below) / 2 : std::max(last, top_rank_) + 1;
      if (rank_below >= 1e9 && rank < 1e6) top_rank_ = rank;
      chunks_[chunk] = {0, 0, rank, std::vector<int32_t>(limits_.chunk_tokens)};
      Read(sequence, chunk, 0);
      sequence.owns_last = true;
    }
    Piece& piece = sequence.pieces.back();
    Chunk& chunk = chunks_[piece.chunk];
    const int32_t position = sequence.keys + 3 * static_cast<int>(sequence.pieces.size());
    chunk.positions[chunk.tokens] = position;
    new_tokens_.push_back({piece.chunk, chunk.tokens, position});
    piece.tokens = ++chunk.tokens;
    ++sequence.keys;
  }
  return true;
}

void RandomPlan::Join(Sequence& sequence) {
  const Sequence& other = sequences_[Random(limits_.num_slots)];
  const bool fork = Random(4) != 0 && !other.pieces.empty();
  if (fork) {
    // The first keys of another sequence, the last chunk in part or as a whole.
    const int pieces = 1 + Random(static_cast<int>(other.pieces.size()));
    for (int i = 0; i < pieces; ++i) {
      const Piece& piece = other.pieces[i];
      const bool part = i + 1 == pieces && Random(2) == 0;
      const int tokens = part ? 1 + Random(std::max(1, piece.tokens)) : piece.tokens;
      if (piece.tokens > 0) Read(sequence, piece.chunk, std::min(tokens, piece.tokens));
    }
  } else if (Random(2) == 0) {
    const std::vector<Piece>& module = modules_[Random(static_cast<int>(modules_.size()))];
    Append(sequence, Random(2 * limits_.chunk_tokens), chunks_[module.front().chunk].rank);
    for (const Piece& piece : module) Read(sequence, piece.chunk, piece.tokens);
  }
  sequence.owns_last = false;
  const int most = limits_.max_join_chunks * limits_.chunk_tokens;
  Append(sequence, 1 + Random(most), 1e9);
  // An inner chunk that stays part-full.
  if (Random(3) == 0) {
    sequence.owns_last = false;
    Append(sequence, 1 + Random(limits_.chunk_tokens), 1e9);
  }
}

void RandomPlan::Leave(Sequence& sequence) {
  for (const Piece& piece : sequence.pieces) {
    if (--chunks_[piece.chunk].readers == 0) free_.push_back(piece.chunk);
  }
  sequence = {};
}

void RandomPlan::Step(bool decode_only) {
  std::vector<int> order(sequences_.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  steps_.assign(sequences_.size(), {});
  row_positions_.clear();
  num_rows_ = 0;
  for (const int slot : order) {
    Sequence& sequence = sequences_[slot];
    if (sequence.pieces.empty() || Random(8) == 0) continue;
    const int rows = decode_only || Random(4) != 0 ? 1 : 1 + Random(limits_.max_rows);
    const int32_t before = sequence.keys;
    Append(sequence, rows, 1e9);
    const int added = sequence.keys - before;
    if (added == 0) continue;
    steps_[slot] = {added, num_rows_, 0, sequence.keys};
    num_rows_ += added;
    // Positions of the sequence's last `added` keys.
    std::vector<int32_t> positions;
    for (const Piece& piece : sequence.pieces) {
      const Chunk& chunk = chunks_[piece.chunk];
      positions.insert(positions.end(), chunk.positions.begin(),
                       chunk.positions.begin() + piece.tokens);
    }
    row_positions_.insert(row_positions_.end(), positions.end() - added, positions.end());
  }
  MakePlan();
}

void RandomPlan::MakePlan() {
  struct Reader {
    int32_t slot, key_begin, tokens;
    int piece;
  };
  std::vector<std::vector<Reader>> readers(chunks_.size());
  for (int slot = 0; slot < std::ssize(sequences_); ++slot) {
    int32_t key = 0;
    for (int i = 0; i < std::ssize(sequences_[slot].pieces); ++i) {
      const Piece& piece = sequences_[slot].pieces[i];
      readers[piece.chunk].push_back({slot, key, piece.tokens, i});
      key += piece.tokens;
    }
  }
  std::vector<int32_t> order;
  for (int32_t i = 0; i < std::ssize(chunks_); ++i) {
    if (!readers[i].empty()) order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](int32_t i) { return chunks_[i].rank; });

  runs_.clear();
  run_chunks_.clear();
  run_slots_.clear();
  // Whether all who read `a` as a whole go on with `b`, and nobody else reads either.
  const auto follows = [&](int32_t a, int32_t b) {
    if (readers[a].size() != readers[b].size()) return false;
    for (size_t i = 0; i < readers[a].size(); ++i) {
      const Reader &x = readers[a][i], &y = readers[b][i];
      if (x.slot != y.slot || x.piece + 1 != y.piece || x.tokens != chunks_[a].tokens) return false;
    }
    return true;
  };
  for (size_t i = 0; i < order.size();) {
    const auto chunk_begin = static_cast<int32_t>(run_chunks_.size());
    int32_t tokens = 0;
    const size_t first = i;
    do {
      run_chunks_.push_back({order[i], tokens});
      tokens += chunks_[order[i]].tokens;
      ++i;
    } while (i < order.size() && follows(order[i - 1], order[i]) && order[i] % 16 != 0);
    const auto slot_begin = static_cast<int32_t>(run_slots_.size());
    for (const Reader& reader : readers[order[first]]) {
      const Sequence& sequence = sequences_[reader.slot];
      int32_t end = reader.key_begin;
      for (size_t j = 0; j < i - first; ++j) end += sequence.pieces[reader.piece + j].tokens;
      const bool last = end == sequence.keys && sequence.owns_last;
      run_slots_.push_back({reader.slot, reader.key_begin, last ? kOpenEnd : end});
    }
    runs_.push_back({chunk_begin, static_cast<int32_t>(run_chunks_.size()), slot_begin,
                     static_cast<int32_t>(run_slots_.size())});
  }
}

}  // namespace refrain::kernels
