#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_linear_weight.h"
#include "kernels/cuda/cuda_token_sampler.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/scratch.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kLeastCapability = 80;

const CudaLinearWeight& WeightOf(const LinearWeight* weight) {
  return static_cast<const CudaLinearWeight&>(*weight);
}

KvPacking PackingOf(DType) { return KvPacking::kSwizzledRows; }

// Before anything is loaded: the device may be full of what others have there, and another serves.
absl::Status WhileStarting(const DeviceProperties& device, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat("CUDA device ", device.index, " (", device.name,
                   ") has no room for what a back end needs: ", status.message()));
}

// Scratch grows by half at least: each growth waits for the device and ends recorded steps.
size_t Grown(size_t bytes) { return bytes + bytes / 2; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(const CudaOptions& options) {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = OpenDevice(options.device);
  if (!runtime.ok()) return runtime.status();
  return Create(*std::move(runtime), options);
}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(std::unique_ptr<Runtime> runtime,
                                                                 const CudaOptions& options) {
  const DeviceProperties& device = runtime->properties();
  if (device.capability() < kLeastCapability) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", device.index, " (", device.name, ") has compute capability ",
                     device.major, ".", device.minor, "; at least 8.0 is needed"));
  }
  absl::StatusOr<std::unique_ptr<Stream>> stream = runtime->CreateStream(StreamPriority::kHigh);
  if (!stream.ok()) return WhileStarting(device, stream.status());
  std::unique_ptr<CudaBackend> backend(
      new CudaBackend(std::move(runtime), *std::move(stream), options));
  if (options.check_attention) {
    if (absl::Status status = backend->TryAttention(options); !status.ok()) return status;
  }
  if (options.library.has_value()) backend->OpenLibrary(*options.library);
  return backend;
}

CudaBackend::CudaBackend(std::unique_ptr<Runtime> runtime, std::unique_ptr<Stream> stream,
                         const CudaOptions& options)
    : runtime_(std::move(runtime)),
      stream_(std::move(stream)),
      device_(*runtime_, *stream_),
      rounded_x_(*stream_, device_),
      arrays_(*runtime_, *stream_, device_),
      attention_(*runtime_, *stream_, device_, arrays_, options.attention),
      graphs_(*runtime_, *stream_),
      clock_(*runtime_, *stream_),
      failure_(runtime_->properties()) {
  if (options.attention_multiprocessors.has_value()) {
    attention_.UseMultiprocessors(*options.attention_multiprocessors);
  }
  const DeviceProperties& device = runtime_->properties();
  info_.name = "cuda";
  info_.isa = absl::StrCat("sm_", device.capability(), " (", device.name, ")");
  info_.preferred_kv = DType::kF16;
  info_.kv_packing = &PackingOf;
  info_.packed_as = &PackedAs;
  for (const DTypeTraits& traits : kDTypes) {
    if (traits.quantized) info_.second_copies.push_back(traits.dtype);
  }
  info_.second_copy_measured = false;
  info_.reads_results_in_place = false;
  info_.products = "own kernels";
}

absl::Status CudaBackend::TryAttention(const CudaOptions& options) {
  const AttentionDevice properties = AttentionDeviceOf(runtime_->properties());
  const AttentionKernel fastest = options.attention.value_or(AttentionKernel::kHopper);
  for (const auto& [kernel, level] :
       {std::pair(AttentionKernel::kHopper, "sm_90a"), std::pair(AttentionKernel::kMma, "sm_80")}) {
    if (kernel > fastest) continue;
    AttentionLauncher plain(*runtime_, *stream_, device_, arrays_, AttentionKernel::kGeneric);
    AttentionLauncher tried(*runtime_, *stream_, device_, arrays_, kernel);
    bool refused = false;
    const absl::StatusOr<std::string> fault = options.check_attention(
        kernel, properties, device_,
        [&](AttentionKernel by, int multiprocessors, const ChunkAttentionArgs& args) {
          AttentionLauncher& launcher = by == AttentionKernel::kGeneric ? plain : tried;
          launcher.UseMultiprocessors(multiprocessors);
          absl::Status status = launcher.Launch(args);
          refused = &launcher == &tried && stream_->failure().has_value();
          return status;
        });
    const std::string refusal = refused ? TakeRefusal() : "";
    if (absl::IsResourceExhausted(fault.status())) {
      return WhileStarting(runtime_->properties(), fault.status());
    }
    if (!fault.ok() && refusal.empty()) {
      return absl::InternalError(absl::StrCat(
          "CUDA device ", runtime_->properties().index, " (", runtime_->properties().name,
          ") failed while its attention of ", level, " was tried: ", fault.status().message()));
    }
    if (fault.ok() && fault->empty()) continue;
    attention_.Exclude(kernel);
    AddWarning(absl::StrCat("attention of ", level,
                            fault.ok() ? " computes wrong results" : " does not start",
                            " on this device (", fault.ok() ? *fault : refusal,
                            ") and is not used, which costs speed"));
  }
  return absl::OkStatus();
}

void CudaBackend::OpenLibrary(const LibraryProducts::Options& options) {
  auto library = runtime_->OpenProductLibrary();
  if (!library.ok()) {
    info_.products = absl::StrCat("own kernels (", library.status().message(), ")");
    return;
  }
  library_ = std::make_unique<LibraryProducts>(*std::move(library), *runtime_, *stream_, device_,
                                               rounded_x_, options);
  info_.products = library_->Summary();
}

void CudaBackend::AddWarning(std::string_view warning) {
  absl::StrAppend(&info_.warning, info_.warning.empty() ? "" : "; ", std::string(warning));
}

std::string CudaBackend::TakeRefusal() {
  std::string refusal = *stream_->failure();
  stream_->ForgetFailure();
  if (!runtime_->Synchronize(*stream_).ok()) return "";
  device_.TakeFailure().IgnoreError();  // copies behind the launch failed with it
  return refusal;
}

CudaBackend::~CudaBackend() { runtime_->Synchronize(*stream_).IgnoreError(); }

absl::StatusOr<std::unique_ptr<LinearWeight>> CudaBackend::PackLinear(
    std::span<const WeightSlice> slices, const PackOptions& options) {
  auto packed = PackCudaLinear(slices, options, device_);
  if (!packed.ok()) return packed.status();
  if ((*packed)->exact()) return packed;
  if (absl::Status status = runtime_->MakeCurrent(); !status.ok()) return status;
  if (options.second_copy) {
    const absl::Status status = (*packed)->AddSecondCopies(*stream_, device_);
    if (!status.ok()) return status;
  }
  for (const CudaLinearWeight::Part& part : (*packed)->parts()) {
    AddShape(part.matrix);
    if (part.has_second()) AddShape(part.second);
  }
  if (library_ == nullptr) return packed;
  for (const CudaLinearWeight::Part& part : (*packed)->parts()) {
    // Of a weight with a second copy the blocks have no more rows than the library is tried for.
    const DeviceMatrix& many = part.has_second() ? part.second : part.matrix;
    const absl::Status status = library_->Prepare(many, [this](const GemmLaunch& launch) {
      rounded_x_.Forget();
      return MultiplyByOwnKernel(launch, /*exact=*/false, /*reproducible=*/false);
    });
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("while products by ", std::string(library_->name()),
                                       " were tried: ", status.message()));
    }
  }
  rounded_x_.GiveBack();
  if (library_->fault().empty()) {
    info_.products = library_->Summary();
    return packed;
  }
  AddWarning(absl::StrCat("products are not the library's on this device: ", library_->fault()));
  device_.TakeFailure().IgnoreError();  // copies behind a refused launch failed with it
  info_.products = "own kernels";
  library_.reset();
  return packed;
}

void CudaBackend::AddShape(const DeviceMatrix& weight) {
  const bool known = std::ranges::any_of(shapes_, [&](const DeviceMatrix& shape) {
    return shape.dtype == weight.dtype && shape.rows == weight.rows && shape.cols == weight.cols;
  });
  if (!known) shapes_.push_back(LayOut(weight.dtype, weight.rows, weight.cols));
}

absl::Status CudaBackend::ReserveFor(const StepShape& step) {
  const auto rows = static_cast<size_t>(step.rows);
  const size_t gate_bytes = rows * static_cast<size_t>(step.ffn_size) * sizeof(float);
  size_t split_bytes = 0, rounded_bytes = 0;
  for (const DeviceMatrix& weight : shapes_) {
    if (HasTileKernel(weight.dtype)) {
      rounded_bytes = std::max(rounded_bytes, RoundedBytes(step.rows, weight.cols));
    }
    if (step.attention.reproducible) continue;
    split_bytes = std::max(
        split_bytes, MostSplitSumBytes(weight, step.rows, runtime_->properties().multiprocessors));
  }
  absl::Status status = ReserveScratch(device_, gate_bytes, gate_bytes, &gate_);
  if (status.ok() && rounded_bytes > 0) status = rounded_x_.Reserve(rounded_bytes);
  if (status.ok() && split_bytes > 0) {
    status = ReserveScratch(device_, split_bytes, split_bytes, &split_sums_);
  }
  if (!status.ok()) return status;
  const size_t index_bytes = rows * sizeof(int32_t);  // ids, positions, rows of logits
  const size_t announced[] = {index_bytes, index_bytes, rows * sizeof(KvSlotRef),
                              step.attention.steps.size_bytes()};
  status = arrays_.Reserve(announced, index_bytes);
  return status.ok() ? attention_.Reserve(step.attention) : status;
}

bool CudaBackend::Enter() {
  behind_rope_append_ = false;
  Keep(device_.TakeFailure());
  KeepRefusal();
  if (!failure_.none()) return false;
  Keep(runtime_->MakeCurrent());
  return failure_.none();
}

void CudaBackend::KeepRefusal() {
  if (!stream_->lacks_memory()) return;
  failure_.KeepRefusal(*stream_);
  rounded_x_.Forget();  // which may be what was refused
}

absl::Status CudaBackend::Synchronize() {
  KeepRefusal();
  failure_.KeepOfDevice(runtime_->Synchronize(*stream_));
  return failure_.Take();
}

absl::StatusOr<std::unique_ptr<TokenSampler>> CudaBackend::MakeTokenSampler(
    const TokenSamplerOptions& options) {
  if (options.vocab > kMaxSamplingVocab) return std::unique_ptr<TokenSampler>();
  return CudaTokenSampler::Create(options, *runtime_, *stream_, device_, clock_, failure_);
}

void CudaBackend::BeginStep(const StepInputs& inputs) {
  if (!Enter()) return;
  const std::span<const std::byte> arrays[] = {
      std::as_bytes(inputs.ids), std::as_bytes(inputs.positions),
      std::as_bytes(inputs.destinations), std::as_bytes(inputs.steps)};
  Keep(arrays_.Announce(arrays));
  attention_.BeginStep(inputs);
}

void CudaBackend::RunStep(const StepInputs& inputs, const std::function<void()>& operations) {
  clock_.StepBegins();
  rounded_x_.Forget();
  PutForwardPass(inputs, operations);
  clock_.HostLeaves();
}

void CudaBackend::PutForwardPass(const StepInputs& inputs,
                                 const std::function<void()>& operations) {
  BeginStep(inputs);
  Graph* const graph = Enter() ? GraphOrNull(inputs, operations) : nullptr;
  const absl::Status launched =
      graph == nullptr ? absl::OkStatus() : runtime_->LaunchGraph(*graph, *stream_);
  // One by one they need no memory of their own.
  if (graph == nullptr || absl::IsResourceExhausted(launched)) {
    clock_.PassIsUnrecorded();
    return operations();
  }
  Keep(launched);
  rounded_x_.Forget();
  ++replayed_steps_;
}

Graph* CudaBackend::GraphOrNull(const StepInputs& inputs, const std::function<void()>& operations) {
  if (inputs.pass == nullptr || inputs.ids.size() > StepGraphs::kMostRows) return nullptr;
  const absl::StatusOr<bool> prepared = attention_.Prepare(inputs);
  if (!prepared.ok()) Keep(prepared.status());
  if (!prepared.ok() || !*prepared) return nullptr;
  const auto key = [&] {
    return StepGraphs::Key{inputs.pass, inputs.sampled, inputs.ids.size(), inputs.steps.size(),
                           device_.layout() + attention_.layout()};  // neither ever falls
  };
  const StepGraphs::Key now = key();
  if (Graph* const graph = graphs_.FindOrNull(now); graph != nullptr) return graph;
  if (!graphs_.WorthRecording(now)) return nullptr;
  // What else than launches would be in the recording: copies from arrays of this very step.
  const auto uploads = [this] { return arrays_.loose_uploads() + attention_.uploads(); };
  const uint64_t before = uploads();
  Graph* const graph = graphs_.RecordOrNull(now, operations, [&] {
    return failure_.none() && !stream_->failure().has_value() && uploads() == before &&
           key() == now;
  });
  rounded_x_.Forget();
  // Nothing has run: what came of recording is not the step's failure.
  if (graph == nullptr) failure_.Take().IgnoreError();
  return graph;
}

void CudaBackend::Embed(const EmbedArgs& args) {
  if (!Enter()) return;
  rounded_x_.Forget();
  const absl::StatusOr<const int32_t*> ids = arrays_.Find(args.ids);
  if (!ids.ok()) return Keep(ids.status());
  for (const CudaLinearWeight::Part& part : WeightOf(args.table).parts()) {
    LaunchEmbed(*stream_,
                {part.matrix, part.row_begin, *ids, args.sampled, args.out.rows, RowsOf(args.out)});
  }
}

void CudaBackend::RmsNorm(const RmsNormArgs& args) {
  if (!Enter()) return;
  RmsNormLaunch launch = {.rows = args.out.rows,
                          .cols = args.x.cols / args.groups,
                          .eps = static_cast<float>(args.eps),
                          .x = RowsOf(args.x),
                          .weight = args.weight,
                          .out = RowsOf(args.out),
                          .groups = args.groups};
  if (!args.row_indexes.empty()) {
    const absl::StatusOr<const int32_t*> indexes = arrays_.Find(args.row_indexes);
    if (!indexes.ok()) return Keep(indexes.status());
    launch.row_indexes = *indexes;
  }
  if (args.groups == 1) {
    launch.rounded = OfferRounded(args.out, args.reader);
  } else {
    rounded_x_.Forget();
  }
  LaunchRmsNorm(*stream_, launch);
}

void CudaBackend::Multiply(const LinearWeight& weight, const TensorView& x, const TensorView& out,
                           bool accumulate, bool reproducible) {
  const auto& own = static_cast<const CudaLinearWeight&>(weight);
  assert(x.cols == own.k() && out.cols == own.n() && x.rows == out.rows);
  for (const CudaLinearWeight::Part& part : own.parts()) {
    DeviceRows to = RowsOf(out);
    to.data += part.row_begin;
    const bool second =
        part.has_second() && !reproducible && x.rows >= CudaLinearWeight::kSecondCopyRows;
    const GemmLaunch launch = {second ? part.second : part.matrix, x.rows, RowsOf(x), to,
                               accumulate};
    if (library_ != nullptr && !own.exact() && !reproducible) {
      if (library_->Multiply(launch)) continue;
    }
    Keep(MultiplyByOwnKernel(launch, own.exact(), reproducible));
    if (!failure_.none()) return;
  }
}

absl::Status CudaBackend::MultiplyByOwnKernel(GemmLaunch launch, bool exact, bool reproducible) {
  const DType dtype = launch.weight.dtype;
  GemmKernel kernel = GemmKernel::kFma;
  if (!exact && HasTileKernel(dtype)) {
    kernel = reproducible ? GemmKernel::kTile : ChooseGemm(dtype, launch.rows);
  }
  if (kernel == GemmKernel::kTile && !reproducible) {
    launch.splits = ChooseSplits(launch, runtime_->properties().multiprocessors);
  }
  if (kernel == GemmKernel::kTile) {
    absl::StatusOr<const std::byte*> x =
        rounded_x_.Have(RoundedAs(dtype), launch.rows, launch.weight.cols, launch.x);
    if (!x.ok()) return x.status();
    launch.rounded_x = *x;
  }
  if (launch.splits > 1) {
    const size_t bytes = SplitSumBytes(launch);
    absl::Status status = ReserveScratch(device_, bytes, Grown(bytes), &split_sums_);
    if (!status.ok()) return status;
    launch.split_sums = reinterpret_cast<float*>(split_sums_.data());
  }
  LaunchGemm(*stream_, kernel, launch);
  return absl::OkStatus();
}

RoundedRows CudaBackend::OfferRounded(const TensorView& x, const LinearWeight* reader) {
  rounded_x_.Forget();
  if (reader == nullptr || WeightOf(reader).exact()) return {};
  // A second copy is in f16, which its blocks are multiplied in, too.
  for (const CudaLinearWeight::Part& part : WeightOf(reader).parts()) {
    if (ChooseGemm(part.matrix.dtype, x.rows) != GemmKernel::kTile) continue;
    return rounded_x_.Offer(RoundedAs(part.matrix.dtype), x.rows, x.cols, RowsOf(x));
  }
  return {};
}

void CudaBackend::Linear(const LinearArgs& args) {
  if (!Enter()) return;
  Multiply(*args.weight, args.x, args.out, args.accumulate, args.reproducible);
  rounded_x_.Forget();
}

void CudaBackend::GateUp(const GateUpArgs& args) {
  if (!Enter()) return;
  const int64_t rows = args.out.rows, cols = args.out.cols;
  const size_t bytes = static_cast<size_t>(rows * cols) * sizeof(float);
  Keep(ReserveScratch(device_, bytes, Grown(bytes), &gate_));
  if (!failure_.none()) return;
  const TensorView gate = F32View(reinterpret_cast<float*>(gate_.data()), rows, cols);
  Multiply(*args.gate, args.x, gate, false, args.reproducible);
  Multiply(*args.up, args.x, args.out, false, args.reproducible);
  LaunchSwiGlu(*stream_, {rows, cols, RowsOf(gate), RowsOf(args.out), RowsOf(args.out),
                          OfferRounded(args.out, args.reader)});
}

void CudaBackend::RopeAppend(const RopeAppendArgs& args) {
  if (!Enter()) return;
  rounded_x_.Forget();
  const absl::StatusOr<const int32_t*> positions = arrays_.Find(args.positions);
  if (!positions.ok()) return Keep(positions.status());
  const absl::StatusOr<const KvSlotRef*> destinations = arrays_.Find(args.destinations);
  if (!destinations.ok()) return Keep(destinations.status());
  LaunchRopeAppend(*stream_, {args.layer, args.num_heads, args.qkv.rows, RowsOf(args.qkv),
                              *positions, args.table, *destinations, args.kv});
  behind_rope_append_ = true;
}

void CudaBackend::ChunkAttention(const ChunkAttentionArgs& args) {
  const bool behind_rope = behind_rope_append_;
  if (!Enter()) return;
  rounded_x_.Forget();
  Keep(attention_.Launch(args, behind_rope));
}

void CudaBackend::SwiGlu(const SwiGluArgs& args) {
  if (!Enter()) return;
  rounded_x_.Forget();
  LaunchSwiGlu(*stream_, {args.out.rows, args.out.cols, RowsOf(args.gate), RowsOf(args.up),
                          RowsOf(args.out)});
}

void CudaBackend::Add(const AddArgs& args) {
  if (!Enter()) return;
  rounded_x_.Forget();
  LaunchAdd(*stream_, {args.x.rows, args.x.cols, RowsOf(args.x), RowsOf(args.y)});
}

}  // namespace refrain::kernels::cuda
