#include "kernels/reference/attention.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/kv_element.h"

namespace refrain::kernels {
namespace {

// Where key index i of a slot lies.
struct KeyPlace {
  int32_t chunk;
  int32_t token;
};

// The keys of run `run` that `entry` gives to a slot of `length` keys, appended to `places`.
void AppendRun(const ChunkAttentionArgs& args, const AttentionRun& run, const RunSlot& entry,
               int32_t length, std::vector<KeyPlace>& places) {
  const int32_t begin = entry.key_begin;
  assert(begin == std::ssize(places) || begin >= length);
  for (int32_t i = run.chunk_begin; i < run.chunk_end; ++i) {
    const RunChunk& chunk = args.plan.chunks[i];
    const bool last = i + 1 == run.chunk_end;
    const int32_t tokens =
        last ? args.kv.chunk_tokens : args.plan.chunks[i + 1].token_begin - chunk.token_begin;
    assert(tokens > 0 && tokens <= args.kv.chunk_tokens);
    for (int32_t token = 0; token < tokens; ++token) {
      const int32_t key = begin + chunk.token_begin + token;
      if (key >= std::min(entry.key_end, length)) return;
      assert(key == std::ssize(places));
      places.push_back({chunk.chunk, token});
    }
  }
}

// [key_end] the places of all keys of a slot.
std::vector<KeyPlace> GatherKeys(const ChunkAttentionArgs& args, int32_t slot) {
  const int32_t length = args.steps[slot].key_end;
  std::vector<KeyPlace> places;
  for (const AttentionRun& run : args.plan.runs) {
    for (int32_t i = run.slot_begin; i < run.slot_end; ++i) {
      const RunSlot& entry = args.plan.slots[i];
      if (entry.slot == slot) AppendRun(args, run, entry, length, places);
    }
  }
  assert(std::ssize(places) == length);
  return places;
}

bool InWindow(const ChunkAttentionArgs& args, int32_t row, const KeyPlace& place) {
  if (args.window_tokens == 0) return true;
  const int64_t at = static_cast<int64_t>(place.chunk) * args.kv.chunk_tokens + place.token;
  return args.row_positions[row] - args.kv.positions[at] < args.window_tokens;
}

// K and V of one KV head, of a slot's keys from `key_begin` on: [keys, head_dim].
struct HeadKeys {
  int32_t key_begin;
  std::vector<float> k, v;
};

HeadKeys LoadHead(const ChunkAttentionArgs& args, const std::vector<KeyPlace>& places,
                  int32_t key_begin, int kv_head) {
  HeadKeys keys{.key_begin = key_begin, .k = {}, .v = {}};
  for (size_t key = key_begin; key < places.size(); ++key) {
    for (int i = 0; i < args.kv.head_dim; ++i) {
      const KvElement at = {places[key].chunk, args.layer, kv_head, places[key].token, i};
      keys.k.push_back(LoadKey(args.kv, at));
      keys.v.push_back(LoadValue(args.kv, at));
    }
  }
  return keys;
}

// One row and head over the keys below `key_end`.
void AttendRow(const ChunkAttentionArgs& args, const std::vector<KeyPlace>& places,
               const HeadKeys& keys, int32_t key_end, int32_t row, int head) {
  const int d = args.kv.head_dim;
  const float* const q = args.q.F32Row(row) + head * d;
  std::vector<double> scores;  // of the keys that are seen
  std::vector<const float*> values;
  double max = -std::numeric_limits<double>::infinity();
  for (int32_t key = keys.key_begin; key < key_end; ++key) {
    if (!InWindow(args, row, places[key])) continue;
    const int64_t at = int64_t{key - keys.key_begin} * d;
    double dot = 0;
    for (int i = 0; i < d; ++i) dot += static_cast<double>(q[i]) * keys.k[at + i];
    values.push_back(keys.v.data() + at);
    scores.push_back(dot * args.scale);
    max = std::max(max, scores.back());
  }
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - max);
  std::vector<double> out(d);
  for (size_t j = 0; j < scores.size(); ++j) {
    for (int i = 0; i < d; ++i) out[i] += scores[j] * values[j][i];
  }
  for (int i = 0; i < d; ++i) {
    args.out.F32Row(row)[head * d + i] = scores.empty() ? 0.0f : static_cast<float>(out[i] / sum);
  }
}

}  // namespace

void ReferenceAttention(const ChunkAttentionArgs& args) {
  assert(args.kv.num_kv_heads > 0 && args.num_heads % args.kv.num_kv_heads == 0);
  assert(args.q.cols == static_cast<int64_t>(args.num_heads) * args.kv.head_dim);
  assert(args.out.cols == args.q.cols);
  for (int32_t slot = 0; slot < std::ssize(args.steps); ++slot) {
    const SlotStep& step = args.steps[slot];
    if (step.num_rows == 0) continue;
    assert(step.num_rows <= step.key_end && step.key_begin >= 0);
    const std::vector<KeyPlace> places = GatherKeys(args, slot);
    const int group = args.num_heads / args.kv.num_kv_heads;
    for (int kv_head = 0; kv_head < args.kv.num_kv_heads; ++kv_head) {
      const HeadKeys keys = LoadHead(args, places, step.key_begin, kv_head);
      for (int32_t i = 0; i < step.num_rows; ++i) {
        const int32_t own = step.key_end - step.num_rows + i;
        for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          AttendRow(args, places, keys, own + 1, step.row_begin + i, head);
        }
      }
    }
  }
}

}  // namespace refrain::kernels
