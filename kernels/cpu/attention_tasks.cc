#include "kernels/cpu/attention_tasks.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <type_traits>

namespace refrain::kernels::cpu {
namespace {

// A slot with more query rows per KV head than this is bound by arithmetic on its own: nothing is
// gained by doing its shared keys together with others'.
constexpr int kMaxSharingRows = 32;
// Few rows cost as much as this many: reading K and V is the limit then.
constexpr int kRowsForFree = 6;
// A block of fewer query rows spends too much on widening.
constexpr int kMinTaskRows = 48;
constexpr int kTasksPerThread = 8;
// With this many tasks at least, and none longer than the others by much, a thread that is done
// with its own waits little for another's last.
constexpr int64_t kTasksPerEvenThread = 8;
// Of shared keys divided by keys and heads alone: so few, for each leaves a state per row, and what
// another thread has written costs as much to read as keys from memory.
constexpr int64_t kSharedTasksPerThread = 3;
// Shortest segment that a long slot is cut into when the cut is free to choose.
constexpr int32_t kMinSplitKeys = 128;
// Tasks per thread that a slot is cut into that is alone.
constexpr int64_t kSplitTasksPerThread = 4;
// The most floats that may wait between the phases for one slot, where the cut is not free to
// choose: 64 MiB. Beyond, threads that have nothing to do cost less than memory.
constexpr int64_t kMaxSplitFloats = 1 << 24;
// The same for all slots that are cut: 256 MiB.
constexpr int64_t kMaxSplitFloatsTogether = 1 << 26;
// The same for shared keys: 256 MiB. Beyond, where the cut is not free, slots read their own way.
constexpr int64_t kMaxSharedFloats = 1 << 26;
// A state that is merged costs as much as so many keys.
constexpr int64_t kKeysPerMerge = 4;

int Group(const ChunkAttentionArgs& args) { return args.num_heads / args.kv.num_kv_heads; }

// Rows that go into one task: as many as scratch allows, for they share the widening of K and V,
// but few enough to give every thread something to do.
int32_t RowsPerTask(const ChunkAttentionArgs& args, int threads) {
  int64_t rows = 0;
  for (const SlotStep& step : args.steps) rows += step.num_rows;
  const int64_t for_balance = rows * args.kv.num_kv_heads / (int64_t{kTasksPerThread} * threads);
  const int most = std::max(1, kMaxTaskRows / Group(args));
  const int least = std::max(1, kMinTaskRows / Group(args));
  return static_cast<int32_t>(std::clamp<int64_t>(for_balance, least, most));
}

// Keys that the first row of the slot sees; the later ones see more.
int32_t FirstLimit(const SlotStep& step) { return step.key_end - step.num_rows + 1; }

int64_t Cost(int64_t query_rows, int64_t keys) {
  return std::max<int64_t>(query_rows, kRowsForFree) * keys;
}

template <class T>
bool SameBytes(std::span<const T> a, const std::vector<T>& b) {
  static_assert(std::has_unique_object_representations_v<T>);
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

int32_t RoundDown(int32_t x, int32_t unit) { return x / unit * unit; }

// A slot with nothing split.
struct OwnCost {
  int64_t keys;       // that are not shared
  int64_t row_task;   // cost of the longest
  int64_t row_tasks;  // how many

  int64_t all() const { return row_task * row_tasks; }
};

// Keys of each task where a slot is cut: into as many as one alone would be, but no more than twice
// its share of `total` asks for. More than a segment are whole segments, whose states stay in the
// task: so what waits between the phases grows with the threads, not with keys or slots.
int32_t SplitKeys(const OwnCost& own, int64_t total, int threads) {
  const int64_t alone = kSplitTasksPerThread * threads;
  const int64_t tasks = std::min((2 * own.all() * alone + total - 1) / total, alone);
  const int64_t share = own.keys * own.row_tasks / tasks;
  const int64_t segments = share / (2 * kSegmentKeys);  // twice the tasks: they are longer
  if (segments > 0) return static_cast<int32_t>(segments * kSegmentKeys);
  return static_cast<int32_t>(
      std::clamp<int64_t>((share + 63) / 64 * 64, kMinSplitKeys, kSegmentKeys));
}

// Of the partial outputs, with every `segment_keys` of `keys` keys on their own.
int64_t SplitFloats(const ChunkAttentionArgs& args, int32_t slot, int64_t keys,
                    int32_t segment_keys) {
  return (keys / segment_keys + 2) * args.steps[slot].num_rows * args.num_heads * args.kv.head_dim;
}

}  // namespace

bool AttentionTasks::Planned(const ChunkAttentionArgs& args, int threads,
                             bool shares_by_keys) const {
  return planned_ && inputs_.threads == threads && inputs_.shares_by_keys == shares_by_keys &&
         inputs_.num_heads == args.num_heads && inputs_.window_tokens == args.window_tokens &&
         inputs_.mode == args.mode && inputs_.reproducible == args.reproducible &&
         inputs_.kv == args.kv && SameBytes(args.steps, inputs_.steps) &&
         SameBytes(args.plan.runs, inputs_.runs) && SameBytes(args.plan.slots, inputs_.slots) &&
         SameBytes(args.plan.chunks, inputs_.chunks);
}

bool AttentionTasks::Plan(const ChunkAttentionArgs& args, int threads, bool shares_by_keys) {
  if (Planned(args, threads, shares_by_keys)) return false;
  planned_ = false;  // what follows may throw for want of memory
  inputs_.runs.assign(args.plan.runs.begin(), args.plan.runs.end());
  inputs_.chunks.assign(args.plan.chunks.begin(), args.plan.chunks.end());
  inputs_.slots.assign(args.plan.slots.begin(), args.plan.slots.end());
  inputs_.steps.assign(args.steps.begin(), args.steps.end());
  inputs_.kv = args.kv;
  inputs_.num_heads = args.num_heads;
  inputs_.window_tokens = args.window_tokens;
  inputs_.mode = args.mode;
  inputs_.reproducible = args.reproducible;
  inputs_.threads = threads;
  inputs_.shares_by_keys = shares_by_keys;
  if (slots_.size() < args.steps.size()) slots_.resize(args.steps.size());
  task_rows_.clear();
  segment_tasks_.clear();
  row_tasks_.clear();
  num_partials_ = segment_cost_ = row_cost_ = 0;
  rows_per_task_ = RowsPerTask(args, threads);
  enough_tasks_ = int64_t{kTasksPerThread} * threads;
  CollectPieces(args);
  if (args.mode == AttentionMode::kTwoPhase) ShareRuns(args);

  const auto own_cost = [&](int32_t slot) {
    const SlotStep& step = args.steps[slot];
    int64_t keys = step.key_end - step.key_begin;
    for (const Segment& shared : slots_[slot].shared) keys -= shared.end - shared.begin;
    const int32_t rows = std::min(step.num_rows, rows_per_task_);
    const int32_t blocks = (step.num_rows + rows_per_task_ - 1) / rows_per_task_;
    return OwnCost{keys, Cost(rows * Group(args), keys), int64_t{blocks} * args.kv.num_kv_heads};
  };
  const int32_t num_slots = static_cast<int32_t>(args.steps.size());
  int64_t total = segment_cost_;
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    if (slots_[slot].active) total += own_cost(slot).all();
  }
  int64_t room = kMaxSplitFloatsTogether;
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    if (!slots_[slot].active) continue;
    const OwnCost own = own_cost(slot);
    bool split = threads > 1 && own.row_task * 3 * threads > total;
    int32_t segment_keys = kSegmentKeys;
    if (split) {
      if (!args.reproducible) segment_keys = SplitKeys(own, total, threads);
      const int64_t floats = SplitFloats(args, slot, own.keys, segment_keys);
      split = floats <= (args.reproducible ? std::min(room, kMaxSplitFloats) : room);
      room -= split ? floats : 0;
    }
    CutSegments(args, slot, split ? segment_keys : kSegmentKeys);
    if (split) SplitSlot(args, slot);
    for (int32_t row = 0; row < args.steps[slot].num_rows; row += rows_per_task_) {
      const int32_t row_end = std::min(row + rows_per_task_, args.steps[slot].num_rows);
      const int64_t merged = std::ssize(slots_[slot].segments) * (row_end - row) * Group(args);
      const int64_t cost = split ? kKeysPerMerge * merged : own.row_task;
      // Causal: earlier blocks see fewer keys.
      const int64_t seen = args.steps[slot].key_end - args.steps[slot].num_rows + row_end;
      for (int32_t h = 0; h < args.kv.num_kv_heads; ++h) {
        row_tasks_.push_back({slot, h, row, row_end, cost * seen / args.steps[slot].key_end});
        row_cost_ += row_tasks_.back().cost;
      }
    }
  }
  Order(threads);
  planned_ = true;
  return true;
}

// Where no task is a large part of what a thread has to do, threads get stretches of neighbouring
// rows; else the longest tasks go first.
void AttentionTasks::Order(int threads) {
  const auto longer = [](const auto& a, const auto& b) { return a.cost > b.cost; };
  const auto order = [&](auto& tasks, int64_t cost, const auto& before) {
    int64_t longest = 0;
    for (const auto& task : tasks) longest = std::max(longest, task.cost);
    const bool even = longest * threads * kTasksPerEvenThread <= cost;
    even ? std::stable_sort(tasks.begin(), tasks.end(), before)
         : std::stable_sort(tasks.begin(), tasks.end(), longer);
    return even;
  };
  segments_by_rows_ =
      order(segment_tasks_, segment_cost_, [this](const SegmentTask& a, const SegmentTask& b) {
        return task_rows_[a.row_begin].row < task_rows_[b.row_begin].row;
      });
  rows_by_rows_ = order(row_tasks_, row_cost_, [this](const RowTask& a, const RowTask& b) {
    const auto row = [this](const RowTask& task) {
      return inputs_.steps[task.slot].row_begin + task.row_begin;
    };
    return row(a) < row(b);
  });
  if (rows_by_rows_) OrderByHeads(threads);
}

// In each thread's stretch, tasks of many rows by their KV heads: the keys of one head, which the
// rows most often share, stay in the nearer caches while they pass by.
void AttentionTasks::OrderByHeads(int threads) {
  const int32_t group = inputs_.num_heads / inputs_.kv.num_kv_heads;
  const auto many = [group](const RowTask& task) {
    return (task.row_end - task.row_begin) * group > kMaxSharingRows;
  };
  const auto head = [](const RowTask& a, const RowTask& b) { return a.kv_head < b.kv_head; };
  const int64_t count = std::ssize(row_tasks_);
  for (int64_t thread = 0; thread < threads; ++thread) {
    const auto end = row_tasks_.begin() + (thread + 1) * count / threads;
    for (auto task = row_tasks_.begin() + thread * count / threads; task != end;) {
      const auto few = std::find_if_not(task, end, many);
      std::stable_sort(task, few, head);
      task = std::find_if(few, end, many);
    }
  }
}

void AttentionTasks::CollectPieces(const ChunkAttentionArgs& args) {
  for (size_t i = 0; i < args.steps.size(); ++i) {
    Slot& slot = slots_[i];
    slot.active = args.steps[i].num_rows > 0;
    slot.pieces.clear();
    slot.shared.clear();
    slot.segments.clear();
  }
  for (const AttentionRun& run : args.plan.runs) {
    for (int32_t i = run.slot_begin; i < run.slot_end; ++i) {
      const RunSlot& entry = args.plan.slots[i];
      Slot& slot = slots_[entry.slot];
      if (!slot.active) continue;
      const SlotStep& step = args.steps[entry.slot];
      const int32_t run_end = std::min(entry.key_end, step.key_end);
      for (int32_t j = run.chunk_begin; j < run.chunk_end; ++j) {
        const RunChunk& chunk = args.plan.chunks[j];
        const int32_t begin = entry.key_begin + chunk.token_begin;
        const int32_t next = j + 1 < run.chunk_end
                                 ? entry.key_begin + args.plan.chunks[j + 1].token_begin
                                 : begin + args.kv.chunk_tokens;
        const int32_t end = std::min(next, run_end);
        if (begin >= run_end) break;
        if (end <= step.key_begin) continue;  // not read: outside every window
        assert(slot.pieces.empty() || slot.pieces.back().begin + slot.pieces.back().count == begin);
        const int32_t* const positions =
            args.window_tokens == 0
                ? nullptr
                : args.kv.positions + static_cast<int64_t>(chunk.chunk) * args.kv.chunk_tokens;
        slot.pieces.push_back({args.kv.Keys(chunk.chunk, 0, 0), args.kv.Values(chunk.chunk, 0, 0),
                               positions, 0, begin, end - begin});
      }
    }
  }
  for (size_t i = 0; i < args.steps.size(); ++i) {
    if (!slots_[i].active) continue;
    assert(!slots_[i].pieces.empty() && slots_[i].pieces.front().begin <= args.steps[i].key_begin);
    assert(slots_[i].pieces.back().begin + slots_[i].pieces.back().count == args.steps[i].key_end);
  }
}

void AttentionTasks::ShareRuns(const ChunkAttentionArgs& args) {
  const int group = Group(args);
  for (const AttentionRun& run : args.plan.runs) {
    if (run.slot_end - run.slot_begin < 2 || run.chunk_begin == run.chunk_end) continue;
    const int32_t run_tokens =
        args.plan.chunks[run.chunk_end - 1].token_begin + args.kv.chunk_tokens;
    sharers_.clear();
    for (int32_t i = run.slot_begin; i < run.slot_end; ++i) {
      const RunSlot& entry = args.plan.slots[i];
      const SlotStep& step = args.steps[entry.slot];
      if (step.num_rows == 0 || step.num_rows * group > kMaxSharingRows) continue;
      const int32_t end = std::min({entry.key_end, FirstLimit(step), entry.key_begin + run_tokens});
      if (end > entry.key_begin) {
        sharers_.push_back({entry.slot, entry.key_begin, end - entry.key_begin});
      }
    }
    ChooseCut(args);
    if (!args.reproducible) {
      ShareBetween(args, sharers_);
      continue;
    }
    // Segments are counted from each row's own start: only slots that see the run at the same key
    // indexes have the same ones.
    std::stable_sort(sharers_.begin(), sharers_.end(),
                     [](const Sharer& a, const Sharer& b) { return a.key_begin < b.key_begin; });
    for (size_t begin = 0, end = 0; begin < sharers_.size(); begin = end) {
      while (end < sharers_.size() && sharers_[end].key_begin == sharers_[begin].key_begin) ++end;
      ShareBetween(args, std::span(sharers_).subspan(begin, end - begin));
    }
  }
}

// Cuts the run into stretches of segments and gives each to the slots that see the whole of it, if
// there are two or more. Slots that see less than others are peeled off as their ends are passed.
void AttentionTasks::ShareBetween(const ChunkAttentionArgs& args, std::span<Sharer> sharers) {
  std::stable_sort(sharers.begin(), sharers.end(),
                   [](const Sharer& a, const Sharer& b) { return a.tokens > b.tokens; });
  int32_t begin = 0;
  if (args.reproducible && !sharers.empty()) {
    const int32_t key_begin = sharers.front().key_begin;
    begin = RoundDown(key_begin + kSegmentKeys - 1, kSegmentKeys) - key_begin;
  }
  while (true) {
    while (!sharers.empty() && sharers.back().tokens <= begin) {
      sharers = sharers.first(sharers.size() - 1);
    }
    if (sharers.size() < 2) return;
    int32_t end = begin + kSegmentKeys;
    if (args.reproducible) {
      // Whole segments only; slots that end inside this one do it on their own.
      while (!sharers.empty() && sharers.back().tokens < end) {
        sharers = sharers.first(sharers.size() - 1);
      }
      if (sharers.size() < 2) return;
      // Segments that are merged with one another before the rest of a row are merged from left to
      // right only where nothing is to the left of them.
      const bool leftmost = sharers.front().key_begin + begin == 0;
      if (leftmost)
        end = begin +
              StretchKeys(args, sharers, RoundDown(sharers.back().tokens, kSegmentKeys) - begin);
    } else {
      end = begin + StretchKeys(args, sharers, sharers.back().tokens - begin);
    }
    AddShared(args, sharers, begin, end);
    begin = end;
  }
}

// How many of `keys` keys go into one task: as many segments as leave enough tasks, for the states
// of all but the last stay in the task.
int32_t AttentionTasks::StretchKeys(const ChunkAttentionArgs& args, std::span<const Sharer> sharers,
                                    int32_t keys) const {
  const int32_t segments = (keys + kSegmentKeys - 1) / kSegmentKeys;
  // Which slots a window reaches differs from segment to segment.
  if (args.window_tokens != 0 || segments < 2) return std::min(keys, kSegmentKeys);
  int64_t rows = 0;
  for (const Sharer& sharer : sharers) rows += args.steps[sharer.slot].num_rows;
  const int64_t blocks = (rows + shared_rows_per_task_ - 1) / shared_rows_per_task_;
  const int64_t tasks = args.kv.num_kv_heads * blocks * segments;
  int64_t stretch = reads_once_ ? segments_per_task_ : std::max<int64_t>(tasks / enough_tasks_, 1);
  const int64_t most = kMaxSharedFloats - num_partials_ * args.kv.head_dim;
  const int64_t each = rows * args.num_heads * args.kv.head_dim;
  // No more stretches than there is room for their states.
  const int64_t stretches = std::max<int64_t>(most / each, 1);
  stretch = std::max(stretch, (segments + stretches - 1) / stretches);
  stretch = std::min<int64_t>(stretch, segments);
  return std::min<int32_t>(keys, static_cast<int32_t>(stretch) * kSegmentKeys);
}

// By the keys that windows reach of what the sharers have in common, at most.
void AttentionTasks::ChooseCut(const ChunkAttentionArgs& args) {
  int32_t begin = std::numeric_limits<int32_t>::max(), end = 0;
  for (const Sharer& sharer : sharers_) {
    begin = std::min(begin, std::max(0, args.steps[sharer.slot].key_begin - sharer.key_begin));
    end = std::max(end, sharer.tokens);
  }
  const int32_t tokens = sharers_.empty() ? 0 : std::max(0, end - begin);
  const int32_t segments = (tokens + kSegmentKeys - 1) / kSegmentKeys;
  const int64_t tasks = int64_t{args.kv.num_kv_heads} * segments;
  const int64_t enough = kSharedTasksPerThread * inputs_.threads;
  reads_once_ = inputs_.shares_by_keys && tasks >= enough;
  shared_rows_per_task_ = reads_once_ ? std::max(1, kMaxTaskRows / Group(args)) : rows_per_task_;
  segments_per_task_ = reads_once_ ? static_cast<int32_t>(tasks / enough) : 1;
}

// Tokens [begin, end) of the run that `sharers` are about, for those of them whose window reaches.
void AttentionTasks::AddShared(const ChunkAttentionArgs& args, std::span<const Sharer> sharers,
                               int32_t begin, int32_t end) {
  const int group = Group(args);
  const size_t first_row = task_rows_.size();
  const Sharer* source = nullptr;
  const auto reaches = [&](const Sharer& sharer) {
    return args.steps[sharer.slot].key_begin <= sharer.key_begin + begin;
  };
  if (std::count_if(sharers.begin(), sharers.end(), reaches) < 2) return;
  int64_t states = num_partials_;
  for (const Sharer& sharer : sharers) {
    if (reaches(sharer)) states += int64_t{args.steps[sharer.slot].num_rows} * args.num_heads;
  }
  if (states * args.kv.head_dim > kMaxSharedFloats) return;
  for (const Sharer& sharer : sharers) {
    if (!reaches(sharer)) continue;
    if (source == nullptr) source = &sharer;
    const SlotStep& step = args.steps[sharer.slot];
    const int64_t row_in_task = static_cast<int64_t>(task_rows_.size() - first_row);
    slots_[sharer.slot].shared.push_back(
        {sharer.key_begin + begin, sharer.key_begin + end, num_partials_ + row_in_task * group, 0});
    for (int32_t i = 0; i < step.num_rows; ++i) {
      task_rows_.push_back({step.row_begin + i, source->key_begin + end});
    }
  }
  const size_t rows = task_rows_.size() - first_row;
  for (const Sharer& sharer : sharers) {
    if (reaches(sharer)) {
      slots_[sharer.slot].shared.back().partial_head_stride = static_cast<int64_t>(rows) * group;
    }
  }
  SegmentTask task{};
  task.slot = source->slot;
  task.segment_begin = task.begin = source->key_begin + begin;
  task.end = source->key_begin + end;
  task.row_begin = static_cast<int32_t>(first_row);
  AddSegmentTasks(args, task, rows, shared_rows_per_task_);
}

// One task per KV head and block of rows; `task` has the keys and the first of `rows` task rows.
void AttentionTasks::AddSegmentTasks(const ChunkAttentionArgs& args, SegmentTask task, size_t rows,
                                     int32_t rows_per_task) {
  const int group = Group(args);
  const int32_t first = task.row_begin;
  const int32_t last = first + static_cast<int32_t>(rows);
  for (int32_t h = 0; h < args.kv.num_kv_heads; ++h) {
    for (int32_t row = first; row < last; row += rows_per_task) {
      task.kv_head = h;
      task.row_begin = row;
      task.row_end = std::min(row + rows_per_task, last);
      task.partial = num_partials_;
      task.cost = Cost((task.row_end - task.row_begin) * group, task.end - task.begin);
      num_partials_ += (task.row_end - task.row_begin) * group;
      segment_cost_ += task.cost;
      segment_tasks_.push_back(task);
    }
  }
}

// The slot's segments: the shared ones, and between them its own of up to `segment_keys`.
void AttentionTasks::CutSegments(const ChunkAttentionArgs& args, int32_t slot,
                                 int32_t segment_keys) {
  Slot& s = slots_[slot];
  const SlotStep& step = args.steps[slot];
  // With a whole tile where the cut is free: tiles and pairs are counted from a segment's begin,
  // and used in place only where they lie so in the chunks.
  int32_t key = RoundDown(step.key_begin, args.reproducible ? kSegmentKeys : kTileKeys);
  const auto cut_until = [&](int32_t end) {
    while (key < end) {
      const int32_t next = std::min(key + segment_keys, end);
      if (next > step.key_begin) s.segments.push_back({key, next});
      key = next;
    }
  };
  for (const Segment& shared : s.shared) {
    cut_until(shared.begin);
    s.segments.push_back(shared);
    key = shared.end;
  }
  cut_until(step.key_end);
}

// Makes segment tasks of the slot's own segments.
void AttentionTasks::SplitSlot(const ChunkAttentionArgs& args, int32_t slot) {
  const SlotStep& step = args.steps[slot];
  const size_t first_row = task_rows_.size();
  for (int32_t i = 0; i < step.num_rows; ++i) {
    task_rows_.push_back({step.row_begin + i, FirstLimit(step) + i});
  }
  for (Segment& segment : slots_[slot].segments) {
    if (segment.partial >= 0) continue;
    segment.partial = num_partials_;
    segment.partial_head_stride = static_cast<int64_t>(step.num_rows) * Group(args);
    SegmentTask task{};
    task.slot = slot;
    task.segment_begin = segment.begin;
    task.begin = std::max(segment.begin, step.key_begin);
    task.end = segment.end;
    task.row_begin = static_cast<int32_t>(first_row);
    AddSegmentTasks(args, task, step.num_rows, rows_per_task_);
  }
}

}  // namespace refrain::kernels::cpu
