#ifndef REFRAIN_KERNELS_BACKEND_H_
#define REFRAIN_KERNELS_BACKEND_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/dtype.h"
#include "kernels/ops.h"
#include "kernels/token_sampler.h"

namespace refrain::kernels {

// How a weight takes part in products.
//   kAuto       quantised weights as kQuantized (coarse rows may have 8 bits, see LinearArgs),
//               others as they are stored
//   kF32        dequantised to f32, f32 products: what golden values are compared with
//   kBF16       rounded to bf16, products of bf16 x bf16 with f32 sums
//   kQuantized  quantised weights stay in their blocks, activations to 15 bits of fixed point per
//               block of 32; unquantised weights as kAuto
//   kInt8       as kQuantized with activations of 8 bits (15 in blocks that are far larger than
//               the others of their row): faster where there are many rows, and about as far from
//               exact as bf16 is. The CPU only; elsewhere kAuto
enum class ComputeDType : uint8_t { kAuto, kF32, kBF16, kQuantized, kInt8 };

// Consecutive output rows of one weight: row-major [rows, cols] in file format. `row_order[i]` is
// the source row of output row i (empty = as stored).
struct WeightSlice {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;
  std::span<const int32_t> row_order;
};

// What back ends on the host keep a weight in that is stored as `stored`.
constexpr DType HostPackedAs(DType stored, ComputeDType compute) {
  if (compute == ComputeDType::kF32) return DType::kF32;
  return compute == ComputeDType::kBF16 ? DType::kBF16 : stored;
}

struct PackOptions {
  ComputeDType compute = ComputeDType::kAuto;
  bool embedding = false;  // rows will be looked up by Embed (and may serve as output head too)
  bool argmax = false;     // LinearArgMax will be asked for
  // Keep slices of the types in BackendInfo::second_copies in f16, too, for products of many rows
  // that need not be reproducible. Not with `compute` that keeps them as another type anyway.
  bool second_copy = false;
};

// A weight packed for one back end. Immutable, made once at load, used from any thread.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
  virtual int64_t n() const = 0;  // output rows
  virtual int64_t k() const = 0;  // input columns
  virtual size_t resident_bytes() const = 0;
  virtual size_t second_copy_bytes() const { return 0; }  // of these, PackOptions::second_copy's
};

struct BackendInfo {
  std::string name;  // "reference", "cpu", "cuda"
  std::string isa;   // instruction-set level or compute capability, "" where it says nothing
  int threads = 0;   // compute threads, 0 where it says nothing
  DType preferred_kv = DType::kF16;
  KvPacking (*kv_packing)(DType kv_dtype) = &HostPackingOf;  // how it wants K and V to lie
  // What it keeps a weight in, which says how much memory that takes.
  DType (*packed_as)(DType stored, ComputeDType compute) = &HostPackedAs;
  // Whether the host may read and write the back end's memory through its addresses; else only
  // through Device's copies.
  bool reads_results_in_place = true;
  // Stored types of which a second copy, in f16, is multiplied faster where rows are many
  // (PackOptions::second_copy). Empty: keeping one would be of no use.
  std::vector<DType> second_copies;
  // Whether that was seen on the device at hand or its like, not only reckoned.
  bool second_copy_measured = true;
  std::string products;  // what computes matrix products where there is a choice, else ""
  std::string warning;   // for the log where something is not as it should be, else ""
};

// The host arrays of a step, as its operations will be given them, and what the plan's arrays are a
// copy of: the same generation, the same content, and chunks that hold what they held (KvPoolView's
// positions too) but for the rows' destinations.
struct StepInputs {
  std::span<const int32_t> ids;             // [rows], as EmbedArgs
  std::span<const int32_t> positions;       // [rows]
  std::span<const KvSlotRef> destinations;  // [rows]
  std::span<const SlotStep> steps;          // [num_slots]
  AttentionPlanView plan;
  uint64_t plan_generation = 0;
  const int32_t* sampled = nullptr;  // as EmbedArgs
  const void* pass = nullptr;        // names the operations of RunStep; null: like no other step's
};

// A step, as far as memory hangs on it.
struct StepShape {
  int64_t rows = 0;
  int64_t ffn_size = 0;          // columns of GateUp
  ChunkAttentionArgs attention;  // without K and V, q and out; `reproducible` is the whole step's
};

// One compute device's implementation of the operations of a decoder layer.
//
// It does not know models, sequences or the prefix tree; the engine drives it. Operations are
// called from the engine thread only, run in call order, and may be asynchronous: results are valid
// after Synchronize. Shapes are checked by debug assertions: a wrong shape is a bug of the caller,
// never bad input. Packing can fail (memory, an impossible combination) and says so; operations
// cannot fail on a host, and on a device the failure is kept and reported by Synchronize.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const BackendInfo& info() const = 0;
  virtual Device& device() = 0;

  // Packs the slices, one above the other, into one [sum of rows, cols] weight. `slices` must all
  // have the same cols. The source may be unmapped afterwards.
  virtual absl::StatusOr<std::unique_ptr<LinearWeight>> PackLinear(
      std::span<const WeightSlice> slices, const PackOptions& options) = 0;

  // Takes the memory that operations of such a step need beside their arguments, of weights packed
  // so far: they find it then, whoever takes the rest. RESOURCE_EXHAUSTED where there is none. Back
  // ends on a host need nothing.
  virtual absl::Status ReserveFor(const StepShape& step) { return absl::OkStatus(); }

  // Tells what the operations up to the next call will be given, so that a device can fetch it all
  // at once. Only a hint: operations may be called without it or with other arrays.
  virtual void BeginStep(const StepInputs& inputs) {}

  // Begins a step and calls `operations`, which calls operations. For an equal `pass`, `sampled`
  // and numbers of rows and slots they are the same ones, told the same but for what the arrays
  // hold: so a device may record what they launch and, for later steps, launch that without
  // calling.
  virtual void RunStep(const StepInputs& inputs, const std::function<void()>& operations) {
    BeginStep(inputs);
    operations();
  }

  virtual void Embed(const EmbedArgs& args) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void Linear(const LinearArgs& args) = 0;
  // For back ends that can find the greatest product with less work than to compute all of them.
  virtual void LinearArgMax(const LinearArgMaxArgs& args) {
    std::fill(args.out.begin(), args.out.end(), LinearArgMaxArgs::kUndecided);
  }
  virtual void GateUp(const GateUpArgs& args) = 0;
  virtual void RopeAppend(const RopeAppendArgs& args) = 0;
  virtual void ChunkAttention(const ChunkAttentionArgs& args) = 0;
  virtual void SwiGlu(const SwiGluArgs& args) = 0;
  virtual void Add(const AddArgs& args) = 0;

  virtual absl::Status Synchronize() = 0;

  // Work of the host between steps: calls fn(i) once for each i in [0, count), on its own compute
  // threads at once where it computes on the host's processors. Nothing may be running.
  virtual void ForEachOnHost(int64_t count, const std::function<void(int64_t)>& fn) {
    for (int64_t i = 0; i < count; ++i) fn(i);
  }

  // What chooses tokens on the device; null where that is the host's work, or where it cannot be
  // done for so large a vocabulary. Dies before the back end.
  virtual absl::StatusOr<std::unique_ptr<TokenSampler>> MakeTokenSampler(
      const TokenSamplerOptions& options) {
    return std::unique_ptr<TokenSampler>();
  }
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_BACKEND_H_
