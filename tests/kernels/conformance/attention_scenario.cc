#include "tests/kernels/conformance/attention_scenario.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <random>

#include "tests/kernels/conformance/backends.h"

namespace refrain::kernels {

std::string AttentionShape::name() const {
  return "h" + std::to_string(num_heads) + "kv" + std::to_string(num_kv_heads) + "d" +
         std::to_string(head_dim) + "c" + std::to_string(chunk_tokens) + "_" +
         std::string(Traits(kv_dtype).name) + "_w" + std::to_string(window_tokens);
}

AttentionScenario::AttentionScenario(const AttentionShape& shape, int num_slots, int num_chunks)
    : shape_(shape),
      pool_(num_chunks, /*num_layers=*/2, shape.num_kv_heads, shape.head_dim, shape.chunk_tokens,
            shape.kv_dtype, HostPackingOf(shape.kv_dtype)),
      lengths_(num_slots, 0),
      steps_(num_slots),
      scale_(1.0f / std::sqrt(static_cast<float>(shape.head_dim))) {}

int AttentionScenario::AddRun(const std::vector<int>& tokens, uint32_t seed) {
  Run run{static_cast<int32_t>(chunks_.size()), 0, 0, {}};
  int32_t position = static_cast<int32_t>(seed % 50);
  for (const int count : tokens) {
    assert(count <= shape_.chunk_tokens && next_chunk_ < pool_.num_chunks());
    // Neighbours in a run are not neighbours in the pool.
    const int32_t chunk =
        next_chunk_ % 2 == 0 ? next_chunk_ / 2 : pool_.num_chunks() - 1 - next_chunk_ / 2;
    ++next_chunk_;
    chunks_.push_back({chunk, run.tokens});
    for (int token = 0; token < count; ++token) {
      pool_.FillToken(chunk, token, seed + run.tokens + token);
      position += 1 + (token % 7 == 3 ? 2 : 0);
      pool_.positions()[static_cast<size_t>(chunk) * shape_.chunk_tokens + token] = position;
    }
    run.tokens += count;
  }
  run.chunk_end = static_cast<int32_t>(chunks_.size());
  pending_.push_back(run);
  return static_cast<int>(pending_.size()) - 1;
}

void AttentionScenario::Attend(int run, int slot, int tokens) {
  const bool whole = tokens < 0;
  if (whole) tokens = pending_[run].tokens;
  pending_[run].slots.push_back({slot, lengths_[slot], lengths_[slot] + tokens});
  lengths_[slot] += tokens;
}

void AttentionScenario::Activate(int slot, int rows, int key_end) {
  if (key_end < 0) key_end = lengths_[slot];
  assert(rows <= key_end && key_end <= lengths_[slot]);
  steps_[slot] = {rows, num_rows_, 0, key_end};
  num_rows_ += rows;
}

std::pair<int32_t, int32_t> AttentionScenario::PlaceOfKey(int slot, int32_t key) const {
  for (const Run& run : pending_) {
    for (const RunSlot& entry : run.slots) {
      if (entry.slot != slot || key < entry.key_begin || key >= entry.key_end) continue;
      const int32_t token = key - entry.key_begin;
      int32_t i = run.chunk_begin;
      while (i + 1 < run.chunk_end && chunks_[i + 1].token_begin <= token) ++i;
      return {chunks_[i].chunk, token - chunks_[i].token_begin};
    }
  }
  assert(false);
  return {};
}

int32_t AttentionScenario::PositionOfKey(int slot, int32_t key) const {
  const auto [chunk, token] = PlaceOfKey(slot, key);
  return pool_.view().positions[static_cast<int64_t>(chunk) * shape_.chunk_tokens + token];
}

void AttentionScenario::Finish() {
  for (const Run& run : pending_) {
    const auto begin = static_cast<int32_t>(run_slots_.size());
    for (RunSlot entry : run.slots) {
      // A slot's last run, when it takes the whole of it, is open: the usual growing leaf.
      const bool last = entry.key_end == lengths_[entry.slot];
      if (last && entry.key_end - entry.key_begin == run.tokens) entry.key_end = kOpenEnd;
      run_slots_.push_back(entry);
    }
    runs_.push_back(
        {run.chunk_begin, run.chunk_end, begin, begin + static_cast<int>(run.slots.size())});
  }
  row_positions_.resize(num_rows_);
  for (size_t slot = 0; slot < steps_.size(); ++slot) {
    const SlotStep& step = steps_[slot];
    for (int i = 0; i < step.num_rows; ++i) {
      row_positions_[step.row_begin + i] =
          PositionOfKey(static_cast<int>(slot), step.key_end - step.num_rows + i);
    }
  }
  q_ = RandomFloats(static_cast<size_t>(num_rows_) * shape_.num_heads * shape_.head_dim, 11, 1.5f);
}

void AttentionScenario::MakeScoresWhole() {
  pool_.MakeKeysWhole();
  pool_.MakeValuesShort();
  scale_ = std::numbers::ln2_v<float>;
  // Four elements of each head are 1 or -1, others each time.
  constexpr int kElements = 4;
  std::mt19937 random(12);
  for (size_t head = 0; head < q_.size(); head += shape_.head_dim) {
    std::fill_n(q_.begin() + head, shape_.head_dim, 0.0f);
    for (int i = 0; i < kElements; ++i) {
      q_[head + random() % shape_.head_dim] = random() % 2 == 0 ? 1.0f : -1.0f;
    }
  }
}

void AttentionScenario::PoisonValues() {
  for (size_t slot = 0; slot < steps_.size(); ++slot) {
    const SlotStep& step = steps_[slot];
    if (step.num_rows == 0) continue;
    const int32_t key = step.key_end - step.num_rows + step.num_rows / 2;
    const auto [chunk, token] = PlaceOfKey(static_cast<int>(slot), key);
    pool_.SetValue(chunk, token, std::numeric_limits<float>::infinity());
  }
}

void AttentionScenario::MakeOneKeyWin(int32_t key, float scores) {
  constexpr float kKey = 256.0f;
  pool_.FillKeys(0.0f);
  for (size_t slot = 0; slot < steps_.size(); ++slot) {
    if (steps_[slot].num_rows == 0 || key >= lengths_[slot]) continue;
    const auto [chunk, token] = PlaceOfKey(static_cast<int>(slot), key);
    pool_.SetKey(chunk, token, kKey);
    break;  // a second one could tie with it
  }
  std::fill(q_.begin(), q_.end(), scores / (kKey * static_cast<float>(shape_.head_dim) * scale_));
}

void AttentionScenario::MakeAllAlike(float x, float other) {
  pool_.Fill(x, other);
  std::fill(q_.begin(), q_.end(), x);
}

bool AttentionScenario::poisoned(size_t row_and_head) const {
  const auto heads = static_cast<size_t>(shape_.num_heads);
  const size_t row = row_and_head / heads;
  return row % 3 == 1 && row_and_head % heads == row % heads;
}

void AttentionScenario::PoisonQueries() {
  for (size_t i = 0; i < q_.size(); ++i) {
    if (poisoned(i / static_cast<size_t>(shape_.head_dim))) {
      q_[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

void AttentionScenario::PoisonKeys() {
  ForMiddleKeys([&](int32_t chunk, int32_t token) { pool_.MakeNotFinite(chunk, token); });
}

void AttentionScenario::MakeKeysInfinite() {
  ForMiddleKeys([&](int32_t chunk, int32_t token) {
    pool_.SetKey(chunk, token, std::numeric_limits<float>::infinity());
  });
}

void AttentionScenario::ForMiddleKeys(const std::function<void(int32_t, int32_t)>& fn) {
  for (size_t slot = 0; slot < steps_.size(); ++slot) {
    const SlotStep& step = steps_[slot];
    if (step.num_rows == 0) continue;
    const int32_t key = step.key_end - 1 - step.num_rows / 2;
    const auto [chunk, token] = PlaceOfKey(static_cast<int>(slot), key);
    fn(chunk, token);
  }
}

int AttentionScenario::LeaveOutKeysBeforeTheWindow() {
  int slots = 0;
  for (size_t slot = 0; slot < steps_.size(); ++slot) {
    SlotStep& step = steps_[slot];
    if (step.num_rows == 0) continue;
    const auto seen = [&](int32_t key) {
      const int32_t first_row = step.key_end - step.num_rows;
      const int32_t position = PositionOfKey(static_cast<int>(slot), key);
      for (int32_t row = std::max(0, key - first_row); row < step.num_rows; ++row) {
        if (row_positions_[step.row_begin + row] - position < shape_.window_tokens) return true;
      }
      return false;
    };
    step.key_begin = 0;
    while (!seen(step.key_begin)) ++step.key_begin;  // a row sees itself
    slots += step.key_begin > 0 ? 1 : 0;
  }
  return slots;
}

ChunkAttentionArgs AttentionScenario::Args(std::vector<float>& out) {
  const int64_t cols = static_cast<int64_t>(shape_.num_heads) * shape_.head_dim;
  out.assign(num_rows_ * cols, 1e9f);
  ChunkAttentionArgs args;
  args.layer = 1;
  args.num_heads = shape_.num_heads;
  args.window_tokens = shape_.window_tokens;
  args.scale = scale_;
  args.kv = pool_.view();
  if (shape_.window_tokens == 0) args.kv.positions = nullptr;
  args.plan = {runs_, chunks_, run_slots_};
  args.steps = steps_;
  args.q = F32View(q_.data(), num_rows_, cols);
  args.row_positions = shape_.window_tokens == 0 ? nullptr : row_positions_.data();
  args.out = F32View(out.data(), num_rows_, cols);
  return args;
}

namespace {

// Full chunks and a part-full last one.
std::vector<int> Fill(int tokens, int chunk_tokens) {
  std::vector<int> counts(tokens / chunk_tokens, chunk_tokens);
  if (tokens % chunk_tokens != 0) counts.push_back(tokens % chunk_tokens);
  return counts;
}

}  // namespace

AttentionScenario UnrelatedSlots(const AttentionShape& shape) {
  const int c = shape.chunk_tokens;
  struct SlotOf {
    int keys, rows;
  };
  const SlotOf slots[] = {{c + 3, c + 3}, {1, 1},     {c, 0},    {531, 1},
                          {c - 1, 1},     {c + 1, 2}, {549, 19}, {2 * c, 37 % c + 1},
                          {513, 1}};
  const int num_slots = static_cast<int>(std::size(slots));
  AttentionScenario scenario(shape, num_slots, 3 * (600 / c) + 20);
  for (int slot = 0; slot < num_slots; ++slot) {
    scenario.Attend(scenario.AddRun(Fill(slots[slot].keys, c), 1000 * slot), slot);
  }
  // Rows are in no order of slots.
  for (const int slot : {3, 0, 6, 1, 8, 5, 4, 7}) scenario.Activate(slot, slots[slot].rows);
  scenario.Finish();
  return scenario;
}

namespace {

// The runs of SharedRuns and who attends to them; no slot takes part yet.
AttentionScenario Tree(const AttentionShape& shape) {
  const int c = shape.chunk_tokens;
  AttentionScenario scenario(shape, 11, 14 * (600 / c) + 50);
  std::vector<int> root = Fill(540, c);
  root.insert(root.begin() + 1, c - 3);  // part-full inner chunks
  root.insert(root.begin() + 2, 1);
  const int root_run = scenario.AddRun(root, 1);
  const int module_run = scenario.AddRun({c, c - 5}, 5000);
  const int branch_run = scenario.AddRun({5, c, 7}, 6000);
  const int leaf_run = scenario.AddRun(Fill(3 * c - 1, c), 7000);
  for (const int slot : {0, 2, 3, 5}) scenario.Attend(root_run, slot);
  // The module is at key 0 for slots 1 and 6, behind the root for slots 2 and 5.
  for (const int slot : {1, 2, 5, 6}) scenario.Attend(module_run, slot);
  for (const int slot : {0, 3, 6, 7, 8}) scenario.Attend(branch_run, slot);
  // Slot 0 writes the leaf; slot 3 shares the first tokens of it, slot 1 some more.
  scenario.Attend(leaf_run, 0);
  scenario.Attend(leaf_run, 3, c + 2);
  scenario.Attend(leaf_run, 1, 2 * c + 1);
  const int lengths[] = {0, 3, 2 * c, 1, 9, 1, 30};
  for (int slot = 1; slot < 7; ++slot) {
    scenario.Attend(scenario.AddRun(Fill(lengths[slot], c), 10000 + 1000 * slot), slot);
  }
  // Several segments long, shared from a key index that is no segment border and from the first.
  const int long_run = scenario.AddRun(Fill(1100, c), 8000);
  for (const int slot : {7, 8, 9}) scenario.Attend(long_run, slot);
  scenario.Attend(long_run, 10, 1050);
  return scenario;
}

}  // namespace

AttentionScenario SharedRuns(const AttentionShape& shape) {
  AttentionScenario scenario = Tree(shape);
  const int rows[] = {1, 1, 2, 1, 0, 1, 25, 1, 1, 1, 2};
  for (const int slot : {5, 0, 8, 6, 2, 9, 1, 7, 10, 3}) scenario.Activate(slot, rows[slot]);
  scenario.Finish();
  return scenario;
}

AttentionScenario RowsThatReadCachedKeys(const AttentionShape& shape) {
  AttentionScenario scenario = Tree(shape);
  const int c = shape.chunk_tokens;
  scenario.Activate(5, 20, 540);   // inside the root
  scenario.Activate(0, 2, c + 1);  // rows on both sides of its first chunk's end
  scenario.Activate(2, 1, 512);    // a whole segment
  scenario.Activate(3, 1);         // all its keys, beside the ones above
  scenario.Activate(1, 1, c + 1);
  scenario.Activate(6, 1, 1);
  scenario.Activate(7, 1, 1030);
  scenario.Activate(8, 4, 1027);
  scenario.Activate(9, 1, 1024);
  scenario.Activate(10, 1);
  scenario.Finish();
  return scenario;
}

AttentionScenario MakeScenario(Scenario scenario, const AttentionShape& shape) {
  switch (scenario) {
    case Scenario::kUnrelated:
      return UnrelatedSlots(shape);
    case Scenario::kShared:
      return SharedRuns(shape);
    case Scenario::kCached:
      break;
  }
  return RowsThatReadCachedKeys(shape);
}

}  // namespace refrain::kernels
