#include "tests/kernels/conformance/kv_pool.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/reference/kv_element.h"

namespace refrain::kernels {

KvPool::KvPool(int num_chunks, int num_layers, int num_kv_heads, int head_dim, int chunk_tokens,
               DType dtype, KvPacking packing)
    : num_chunks_(num_chunks), num_layers_(num_layers) {
  view_.head_bytes = static_cast<size_t>(chunk_tokens) * head_dim * Traits(dtype).block_bytes;
  view_.v_offset_bytes = num_kv_heads * view_.head_bytes;
  view_.layer_bytes = (2 * view_.v_offset_bytes + 4095) / 4096 * 4096;
  view_.chunk_bytes = num_layers * view_.layer_bytes;
  view_.dtype = dtype;
  view_.packing = packing;
  view_.chunk_tokens = chunk_tokens;
  view_.num_kv_heads = num_kv_heads;
  view_.head_dim = head_dim;
  storage_.assign(num_chunks * view_.chunk_bytes, std::byte{0xff});  // NaN in every element type
  positions_.assign(static_cast<size_t>(num_chunks) * chunk_tokens, 0);
  view_.base = storage_.data();
  view_.positions = positions_.data();
}

void KvPool::SetBytes(const std::vector<std::byte>& bytes) {
  assert(bytes.size() == storage_.size());
  std::ranges::copy(bytes, storage_.begin());
}

void KvPool::FillToken(int32_t chunk, int token, uint32_t seed) {
  std::minstd_rand random(seed * 2654435761u + 1);
  std::normal_distribution<float> normal;
  for (int layer = 0; layer < num_layers_; ++layer) {
    for (int h = 0; h < view_.num_kv_heads; ++h) {
      for (int i = 0; i < view_.head_dim; ++i) {
        StoreKey(view_, {chunk, layer, h, token, i}, normal(random));
        StoreValue(view_, {chunk, layer, h, token, i}, normal(random));
      }
    }
  }
}

void KvPool::MakeNotFinite(int32_t chunk, int token) {
  SetKey(chunk, token, std::numeric_limits<float>::quiet_NaN());
  SetValue(chunk, token, 0.0f);
}

template <class Fn>
void KvPool::ForElementsOf(int32_t chunk, int token, const Fn& fn) const {
  for (int layer = 0; layer < num_layers_; ++layer) {
    for (int h = 0; h < view_.num_kv_heads; ++h) {
      for (int i = 0; i < view_.head_dim; ++i) fn(KvElement{chunk, layer, h, token, i});
    }
  }
}

void KvPool::SetKey(int32_t chunk, int token, float x) {
  ForElementsOf(chunk, token, [&](const KvElement& at) { StoreKey(view_, at, x); });
}

void KvPool::SetValue(int32_t chunk, int token, float x) {
  ForElementsOf(chunk, token, [&](const KvElement& at) { StoreValue(view_, at, x); });
}

template <class Fn>
void KvPool::ForElements(const Fn& fn) const {
  for (int32_t chunk = 0; chunk < num_chunks_; ++chunk) {
    for (int layer = 0; layer < num_layers_; ++layer) {
      for (int h = 0; h < view_.num_kv_heads; ++h) {
        for (int token = 0; token < view_.chunk_tokens; ++token) {
          for (int i = 0; i < view_.head_dim; ++i) fn(KvElement{chunk, layer, h, token, i});
        }
      }
    }
  }
}

void KvPool::TakeElementsOf(const KvPool& other) {
  ForElements([&](const KvElement& at) {
    StoreKey(view_, at, LoadKey(other.view_, at));
    StoreValue(view_, at, LoadValue(other.view_, at));
  });
}

void KvPool::MakeKeysWhole() {
  ForElements([&](const KvElement& at) {
    const float key = LoadKey(view_, at);
    if (!std::isnan(key)) StoreKey(view_, at, std::clamp(std::round(key), -1.0f, 1.0f));
  });
}

void KvPool::Fill(float even, float odd) {
  ForElements([&](const KvElement& at) {
    StoreKey(view_, at, at.token % 2 == 0 ? even : odd);
    StoreValue(view_, at, at.token % 2 == 0 ? even : odd);
  });
}

void KvPool::FillKeys(float x) {
  ForElements([&](const KvElement& at) { StoreKey(view_, at, x); });
}

void KvPool::MakeValuesShort() {
  ForElements([&](const KvElement& at) {
    const float value = LoadValue(view_, at);
    if (!std::isnan(value)) StoreValue(view_, at, std::round(value * 64) / 64);
  });
}

std::vector<float> KvPool::AllElements() const {
  std::vector<float> all;
  const auto append = [&](float x) { all.push_back(std::isnan(x) ? 1e9f : x); };
  ForElements([&](const KvElement& at) {
    append(LoadKey(view_, at));
    append(LoadValue(view_, at));
  });
  return all;
}

std::vector<std::byte> KvPool::BytesOutsideElements() const {
  std::vector<std::byte> outside;
  for (int i = 0; i < num_chunks_ * num_layers_; ++i) {
    const std::byte* const layer = storage_.data() + i * view_.layer_bytes;
    outside.insert(outside.end(), layer + 2 * view_.v_offset_bytes, layer + view_.layer_bytes);
  }
  return outside;
}

}  // namespace refrain::kernels
