#ifndef REFRAIN_KERNELS_REFERENCE_KV_ELEMENT_H_
#define REFRAIN_KERNELS_REFERENCE_KV_ELEMENT_H_

#include <cstdint>

#include "kernels/attention_args.h"

namespace refrain::kernels {

// One element of a cached key or value, wherever the packing puts it. Slow, for the oracle and for
// tests that fill or inspect chunks. The caller has checked the indexes.
struct KvElement {
  int32_t chunk;
  int layer;
  int kv_head;
  int token;  // inside the chunk
  int dim;
};

float LoadKey(const KvPoolView& kv, const KvElement& at);
float LoadValue(const KvPoolView& kv, const KvElement& at);
void StoreKey(const KvPoolView& kv, const KvElement& at, float value);    // rounds to kv.dtype
void StoreValue(const KvPoolView& kv, const KvElement& at, float value);  // rounds to kv.dtype

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_REFERENCE_KV_ELEMENT_H_
