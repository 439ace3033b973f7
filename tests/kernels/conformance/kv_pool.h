#ifndef REFRAIN_TESTS_KERNELS_CONFORMANCE_KV_POOL_H_
#define REFRAIN_TESTS_KERNELS_CONFORMANCE_KV_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention_args.h"

namespace refrain::kernels {

// A KV pool in host memory for tests, laid out as the engine lays it out: chunks of layers, each
// layer padded to 4,096 bytes. Memory that nothing was written to holds NaN in every element type,
// and the allocation ends with the last layer's last byte, so that reading too far is seen.
class KvPool {
 public:
  KvPool(int num_chunks, int num_layers, int num_kv_heads, int head_dim, int chunk_tokens,
         DType dtype, KvPacking packing);
  KvPool(KvPool&&) = default;  // the view points to what the vectors own, which moves along

  const KvPoolView& view() const { return view_; }
  int num_chunks() const { return num_chunks_; }

  // The whole pool, for copies to a back end's memory and back.
  const std::vector<std::byte>& bytes() const { return storage_; }
  void SetBytes(const std::vector<std::byte>& bytes);

  // [num_chunks, chunk_tokens], all 0 at first.
  std::vector<int32_t>& positions() { return positions_; }

  // One token's K and V in every layer and head, from a normal distribution.
  void FillToken(int32_t chunk, int token, uint32_t seed);

  // What RopeAppend stores of a token with a value that is no finite number, in every layer and
  // head.
  void MakeNotFinite(int32_t chunk, int token);

  // K, or V, of a token, in every layer and head.
  void SetKey(int32_t chunk, int token, float x);
  void SetValue(int32_t chunk, int token, float x);

  // Every element becomes what it is in `other`, of the same shape, rounded.
  void TakeElementsOf(const KvPool& other);

  // K of every token becomes -1, 0 or 1, whichever is nearest.
  void MakeKeysWhole();
  // K and V of every even token of a chunk, and of every odd one.
  void Fill(float even, float odd);
  void FillKeys(float x);
  // V of every token becomes a multiple of 1/64, or stays one of something greater.
  void MakeValuesShort();

  // Every element, NaN written as 1e9: [num_chunks, num_layers, {K, V}, heads, tokens, head_dim].
  std::vector<float> AllElements() const;

  // The padding behind each layer.
  std::vector<std::byte> BytesOutsideElements() const;

 private:
  // Calls fn(KvElement) for every element's place.
  template <class Fn>
  void ForElements(const Fn& fn) const;
  // And for those of a token.
  template <class Fn>
  void ForElementsOf(int32_t chunk, int token, const Fn& fn) const;

  int num_chunks_;
  int num_layers_;
  std::vector<std::byte> storage_;
  std::vector<int32_t> positions_;
  KvPoolView view_;
};

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CONFORMANCE_KV_POOL_H_
