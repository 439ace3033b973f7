#include "kernels/cuda/library_products.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/round_rows.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/widen_weights.h"

namespace refrain::kernels::cuda {
namespace {

// Rows of x overlap: a few floats apart all of them are different, in little memory.
constexpr int64_t kRowShift = 4;
// Both round x and W alike and sum in f32: what is between them is the order of the sums.
constexpr float kMostDifference = 2e-3f;  // of the largest result
constexpr size_t kMostAsked = 4096;
constexpr uint8_t kFlushValue = 0x3c;

bool IsQuantized(DType dtype) { return Traits(dtype).quantized; }

// What the library multiplies in.
DType LibraryType(DType dtype) { return dtype == DType::kBF16 ? DType::kBF16 : DType::kF16; }

size_t WidenedBytes(const DeviceMatrix& weight) {
  if (!IsQuantized(weight.dtype)) return 0;
  return static_cast<size_t>(weight.rows * weight.cols) * sizeof(uint16_t);
}

int64_t RoundedStride(int64_t cols) { return (cols + 7) / 8 * 8; }

// No shape where a row would not begin on a 16-byte border.
std::optional<ProductShape> ShapeOf(const GemmLaunch& args) {
  if (!HasTileKernel(args.weight.dtype) || args.out.stride % 4 != 0 ||
      reinterpret_cast<uintptr_t>(args.out.data) % 16 != 0) {
    return std::nullopt;
  }
  const int64_t weight_stride = IsQuantized(args.weight.dtype)
                                    ? args.weight.cols
                                    : static_cast<int64_t>(args.weight.row_bytes / 2);
  return ProductShape{.dtype = LibraryType(args.weight.dtype),
                      .rows = args.rows,
                      .n = args.weight.rows,
                      .k = args.weight.cols,
                      .x_stride = RoundedStride(args.weight.cols),
                      .weight_stride = weight_stride,
                      .out_stride = args.out.stride,
                      .accumulate = args.accumulate};
}

std::vector<float> RandomFloats(int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace

// What trying one shape needs, given back behind it.
struct LibraryProducts::Trial {
  int64_t out_stride = 0;
  DeviceBuffer x, out, library_out, flush;
  std::unique_ptr<Event> begin, end;
};

LibraryProducts::LibraryProducts(std::unique_ptr<ProductLibrary> library, Runtime& runtime,
                                 Stream& stream, Device& device, Options options)
    : library_(std::move(library)),
      runtime_(runtime),
      stream_(stream),
      device_(device),
      options_(std::move(options)) {}

absl::Status LibraryProducts::Prepare(const DeviceMatrix& weight, const OwnProduct& own) {
  const ShapeKey key = {weight.dtype, weight.rows, weight.cols};
  if (!HasTileKernel(weight.dtype) || !fault_.empty() ||
      std::find(tried_.begin(), tried_.end(), key) != tried_.end()) {
    return absl::OkStatus();
  }
  tried_.push_back(key);
  Trial trial;
  trial.out_stride = (weight.rows + 3) / 4 * 4;  // rows begin on a 16-byte border
  const size_t row_bytes = static_cast<size_t>(trial.out_stride) * sizeof(float);
  std::vector<int64_t> tries;
  for (const int64_t rows : options_.rows) {
    if (IsQuantized(weight.dtype) && rows < options_.least_rows_quantized) continue;
    if (static_cast<size_t>(rows) * row_bytes <= options_.most_out_bytes) tries.push_back(rows);
  }
  if (WidenedBytes(weight) > options_.most_widened_bytes) tries.clear();
  if (tries.empty()) return absl::OkStatus();

  const auto reserve = [&](DeviceBuffer* buffer, size_t bytes) {
    return ReserveScratch(device_, bytes, bytes, buffer);
  };
  const std::vector<float> x = RandomFloats(weight.cols + kRowShift * tries.back());
  absl::Status status = reserve(&workspace_, options_.workspace_bytes);
  status.Update(reserve(&trial.x, x.size() * sizeof(float)));
  for (DeviceBuffer* const out : {&trial.out, &trial.library_out}) {
    status.Update(reserve(out, static_cast<size_t>(tries.back()) * row_bytes));
  }
  status.Update(reserve(&trial.flush, 2 * runtime_.properties().l2_bytes));
  if (absl::IsResourceExhausted(status)) return absl::OkStatus();
  if (!status.ok()) return status;
  status = device_.CopyFromHost(trial.x.data(), reinterpret_cast<const std::byte*>(x.data()),
                                x.size() * sizeof(float));
  if (!status.ok()) return status;
  for (std::unique_ptr<Event>* const event : {&trial.begin, &trial.end}) {
    absl::StatusOr<std::unique_ptr<Event>> made = runtime_.CreateTimingEvent();
    if (!made.ok()) return made.status();
    *event = *std::move(made);
  }
  for (const int64_t rows : tries) {
    status = Try(weight, rows, trial, own);
    if (absl::IsResourceExhausted(status)) return absl::OkStatus();
    if (!status.ok() || !fault_.empty()) return status;
  }
  return absl::OkStatus();
}

absl::Status LibraryProducts::Try(const DeviceMatrix& weight, int64_t rows, Trial& trial,
                                  const OwnProduct& own) {
  GemmLaunch args = {.weight = weight, .rows = rows};
  args.x = {reinterpret_cast<float*>(trial.x.data()), kRowShift};
  args.out = {reinterpret_cast<float*>(trial.out.data()), trial.out_stride};
  const auto at = std::find(options_.rows.begin(), options_.rows.end(), rows);
  Choice choice = {.dtype = weight.dtype,
                   .n = weight.rows,
                   .k = weight.cols,
                   .rows = rows,
                   .least_rows = at == options_.rows.begin() ? 1 : at[-1] + 1};
  const absl::StatusOr<float> own_ms = MedianMs(trial, [&] { return own(args); });
  if (!own_ms.ok()) return own_ms.status();
  choice.own_ms = *own_ms;

  args.out.data = reinterpret_cast<float*>(trial.library_out.data());
  const std::optional<ProductShape> shape = ShapeOf(args);
  std::vector<ProductAlgorithm> algorithms;
  if (shape.has_value()) {
    auto found = library_->Find(*shape, options_.workspace_bytes, options_.algorithms);
    if (found.ok()) algorithms = *std::move(found);
  }
  for (const ProductAlgorithm& algorithm : algorithms) {
    // One that the library refuses after all is not used.
    if (!Put(args, *shape, algorithm).ok()) continue;
    const absl::StatusOr<float> ms = MedianMs(trial, [&] { return Put(args, *shape, algorithm); });
    if (!ms.ok()) return ms.status();
    if (choice.library_ms > 0 && *ms >= choice.library_ms) continue;
    choice.library_ms = *ms;
    if (*ms < options_.worth_it * choice.own_ms) choice.algorithm = algorithm;
  }
  if (choice.algorithm.has_value()) {
    // What the last one tried has left is not what is compared.
    absl::Status status =
        runtime_.FillAsync(trial.library_out.data(), 0xff, trial.library_out.bytes(), stream_);
    if (status.ok()) status = Put(args, *shape, *choice.algorithm);
    if (!status.ok()) return status;
    absl::StatusOr<std::string> difference = Compare(trial, choice);
    if (!difference.ok()) return difference.status();
    if (!difference->empty()) {
      fault_ = *std::move(difference);
      choices_.clear();
      workspace_ = DeviceBuffer();
      rounded_ = DeviceBuffer();
      widened_ = DeviceBuffer();
      return absl::OkStatus();
    }
  }
  choices_.push_back(std::move(choice));
  return absl::OkStatus();
}

absl::StatusOr<float> LibraryProducts::MedianMs(Trial& trial,
                                                const std::function<absl::Status()>& product) {
  std::vector<float> times;
  for (int i = 0; i <= options_.rounds; ++i) {
    absl::Status status =
        runtime_.FillAsync(trial.flush.data(), kFlushValue, trial.flush.bytes(), stream_);
    if (status.ok()) status = runtime_.Record(*trial.begin, stream_);
    if (status.ok()) status = product();
    if (status.ok()) status = runtime_.Record(*trial.end, stream_);
    if (status.ok()) status = runtime_.Synchronize(stream_);
    if (!status.ok()) return status;
    const absl::StatusOr<float> ms = runtime_.MillisecondsBetween(*trial.begin, *trial.end);
    if (!ms.ok()) return ms.status();
    if (i > 0) times.push_back(*ms);  // the first one loads code
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

absl::StatusOr<std::string> LibraryProducts::Compare(const Trial& trial, const Choice& choice) {
  std::vector<float> own(static_cast<size_t>(choice.n)), library(own.size());
  for (const int64_t row : {int64_t{0}, choice.rows / 2, choice.rows - 1}) {
    const auto copy = [&](const DeviceBuffer& out, std::vector<float>& to) {
      const size_t bytes = to.size() * sizeof(float);
      return device_.CopyToHost(
          reinterpret_cast<std::byte*>(to.data()),
          out.data() + static_cast<size_t>(row * trial.out_stride) * sizeof(float), bytes);
    };
    absl::Status status = copy(trial.out, own);
    status.Update(copy(trial.library_out, library));
    if (!status.ok()) return status;
    float largest = 0, most = 0;
    for (size_t i = 0; i < own.size(); ++i) {
      const float difference = std::abs(own[i] - library[i]);
      largest = std::max(largest, std::abs(own[i]));
      most = difference <= most ? most : difference;  // also what is no number
    }
    if (most <= kMostDifference * largest) continue;
    return absl::StrCat(std::string(name()), ": ", std::string(Traits(choice.dtype).name),
                        " weight of ", choice.n, " x ", choice.k, ", row ", row, " of ",
                        choice.rows, " is off by ", most, ", limit ", kMostDifference * largest);
  }
  return std::string();
}

std::string LibraryProducts::Summary() const {
  const auto faster = std::count_if(choices_.begin(), choices_.end(), [](const Choice& choice) {
    return choice.algorithm.has_value();
  });
  return absl::StrCat("own kernels, and ", std::string(name()), " where it is faster (", faster,
                      " of ", choices_.size(), " sizes tried)");
}

const LibraryProducts::Choice* LibraryProducts::ChoiceOrNull(const GemmLaunch& args) const {
  const Choice* best = nullptr;
  // Few rows are read once and not rounded at all.
  if (ChooseGemm(args.weight.dtype, args.rows) == GemmKernel::kFma) return nullptr;
  for (const Choice& choice : choices_) {
    if (choice.dtype != args.weight.dtype || choice.n != args.weight.rows ||
        choice.k != args.weight.cols) {
      continue;
    }
    // The least number of rows that is enough, else the largest there is. They ascend.
    best = &choice;
    if (choice.rows >= args.rows) break;
  }
  if (best != nullptr && args.rows < best->least_rows) return nullptr;
  return best;
}

size_t LibraryProducts::ShapeHash::operator()(const ProductShape& shape) const {
  size_t hash = static_cast<size_t>(shape.dtype) * 2 + (shape.accumulate ? 1 : 0);
  for (const int64_t value : {shape.rows, shape.n, shape.k, shape.out_stride}) {
    hash = hash * 1'000'003 + static_cast<size_t>(value);
  }
  return hash;
}

bool LibraryProducts::Computes(const ProductShape& shape, const ProductAlgorithm& algorithm) {
  if (const auto known = asked_.find(shape); known != asked_.end()) return known->second;
  if (asked_.size() == kMostAsked) asked_.clear();
  const bool computes = library_->Computes(shape, algorithm, options_.workspace_bytes);
  asked_.emplace(shape, computes);
  return computes;
}

absl::Status LibraryProducts::Put(const GemmLaunch& args, const ProductShape& shape,
                                  const ProductAlgorithm& algorithm) {
  const size_t bytes = static_cast<size_t>(shape.rows * shape.x_stride) * sizeof(uint16_t);
  if (absl::Status status = ReserveScratch(device_, bytes, bytes, &rounded_); !status.ok()) {
    return status;
  }
  const std::byte* weight = args.weight.data;
  if (const size_t widened_bytes = WidenedBytes(args.weight); widened_bytes > 0) {
    absl::Status status = ReserveScratch(device_, widened_bytes, widened_bytes, &widened_);
    if (!status.ok()) return status;
    LaunchWidenWeights(stream_, {args.weight, widened_.data()});
    weight = widened_.data();
  }
  LaunchRoundRows(
      stream_, {shape.dtype, args.rows, args.weight.cols, args.x, rounded_.data(), shape.x_stride});
  return library_->Multiply(shape, algorithm,
                            {rounded_.data(), weight, args.out.data, workspace_.data()},
                            options_.workspace_bytes, stream_);
}

absl::StatusOr<bool> LibraryProducts::Multiply(const GemmLaunch& args) {
  const Choice* const choice = ChoiceOrNull(args);
  if (choice == nullptr || !choice->algorithm.has_value()) return false;
  const std::optional<ProductShape> shape = ShapeOf(args);
  if (!shape.has_value() || !Computes(*shape, *choice->algorithm)) return false;
  const absl::Status status = Put(args, *shape, *choice->algorithm);
  if (absl::IsResourceExhausted(status)) return status;
  return status.ok();  // refused: nothing of it was put there but x in 16 bits
}

}  // namespace refrain::kernels::cuda
