#ifndef REFRAIN_TOOLS_BENCH_GPU_LOAD_H_
#define REFRAIN_TOOLS_BENCH_GPU_LOAD_H_

#include <string>

#include "tools/bench/gpu_report.h"
#include "tools/bench/layer_gate.h"
#include "tools/bench/random_model.h"

namespace refrain::bench {

// Tokens that are prefilled while the others are loaded.
inline constexpr int kLoadNewTokens = 64;

// K and V of `tokens` tokens (a multiple of 64) brought from pinned memory to the device by
// ChunkMover, alone and under a prefill of kLoadNewTokens tokens behind them, against computing all
// of them. The load begins with the prefill, each of whose layers attends once its K and V have
// arrived (`gate` is the model's back end); the host waits for that, which takes a little longer
// than a device's own wait. The chunks go to places of their own beside the model's pool, and their
// contents are checked. Ends the program where they are wrong, or where a layer did not wait.
void RunGpuLoad(RandomModel& model, LayerGate& gate, int tokens, int rounds,
                const std::string& shape, GpuReport& report);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_GPU_LOAD_H_
