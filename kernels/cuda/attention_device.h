#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_DEVICE_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_DEVICE_H_

// What the attention kernels have in common on the device.

#include "kernels/cuda/attention_queries.h"
#include "kernels/cuda/attention_states.h"
#include "kernels/cuda/attention_tile_rows.h"

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_DEVICE_H_
