#ifndef REFRAIN_KERNELS_REFERENCE_ATTENTION_H_
#define REFRAIN_KERNELS_REFERENCE_ATTENTION_H_

#include "kernels/attention_args.h"

namespace refrain::kernels {

// ChunkAttention of the reference back end: for every active slot the keys are gathered from the
// runs that list it, then every row and head is a plain softmax in double precision. Sharing,
// `mode` and `reproducible` change nothing here. Asserts that a slot's runs cover its keys in
// order, without gap or overlap. Keys before SlotStep::key_begin are not read.
void ReferenceAttention(const ChunkAttentionArgs& args);

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_REFERENCE_ATTENTION_H_
