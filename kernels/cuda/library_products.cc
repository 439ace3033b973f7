#include "kernels/cuda/library_products.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/round_rows.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/widen_weights.h"
#include "kernels/worse.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int64_t kRandomFloats = (int64_t{1} << 20) - 12;
constexpr int64_t kMostCompared = int64_t{1} << 22;  // results of one comparison, about
constexpr uint8_t kNoNumber = 0xff;                  // in every byte of a float
// Both round x and W alike and sum in f32: what is between them is the order of the sums.
constexpr double kMostDifference = 2e-3;  // of the largest result
constexpr size_t kMostAsked = 4096;
constexpr uint8_t kFlushValue = 0x3c;

bool IsQuantized(DType dtype) { return Traits(dtype).quantized; }

// What the library multiplies in.
DType LibraryType(DType dtype) { return dtype == DType::kBF16 ? DType::kBF16 : DType::kF16; }

size_t WidenedBytes(const DeviceMatrix& weight) {
  if (!IsQuantized(weight.dtype)) return 0;
  return static_cast<size_t>(weight.rows * weight.cols) * sizeof(uint16_t);
}

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
  GemmLaunch Launch(const DeviceMatrix& weight, int64_t rows, const DeviceBuffer& to) const {
    return {.weight = weight,
            .rows = rows,
            .x = {reinterpret_cast<float*>(x.data()), x_stride},
            .out = {reinterpret_cast<float*>(to.data()), out_stride}};
  }

  int64_t x_stride = 0, out_stride = 0;
  DeviceBuffer x, out, library_out, flush;
  std::unique_ptr<Event> begin, end;
};

LibraryProducts::LibraryProducts(std::unique_ptr<ProductLibrary> library, Runtime& runtime,
                                 Stream& stream, Device& device, RoundedX& rounded_x,
                                 Options options)
    : library_(std::move(library)),
      runtime_(runtime),
      stream_(stream),
      device_(device),
      rounded_x_(rounded_x),
      options_(std::move(options)) {}

absl::Status LibraryProducts::Prepare(const DeviceMatrix& weight, const OwnProduct& own) {
  const ShapeKey key = {weight.dtype, weight.rows, weight.cols};
  if (!HasTileKernel(weight.dtype) || !fault_.empty() ||
      std::find(tried_.begin(), tried_.end(), key) != tried_.end()) {
    return absl::OkStatus();
  }
  tried_.push_back(key);
  absl::Status status = TryAll(weight, own);
  if (stream_.failure().has_value()) {
    // A launch that was refused; the device goes on.
    fault_ = *stream_.failure();
    stream_.ForgetFailure();
    status = runtime_.Synchronize(stream_);
  }
  if (!fault_.empty()) choices_.clear();
  KeepWhatIsNeeded();
  return status;
}

absl::Status LibraryProducts::TryAll(const DeviceMatrix& weight, const OwnProduct& own) {
  Trial trial;
  trial.out_stride = (weight.rows + 3) / 4 * 4;  // rows begin on a 16-byte border
  const size_t row_bytes = static_cast<size_t>(trial.out_stride) * sizeof(float);
  std::vector<int64_t> tries;
  bool enough = false;
  for (const int64_t rows : options_.rows) {
    if (enough) break;
    enough = options_.most_rows > 0 && rows >= options_.most_rows;
    if (IsQuantized(weight.dtype) && rows < options_.least_rows_quantized) continue;
    if (static_cast<size_t>(rows) * row_bytes <= options_.most_out_bytes) tries.push_back(rows);
  }
  if (WidenedBytes(weight) > options_.most_widened_bytes || tries.empty()) return absl::OkStatus();
  absl::Status status = MakeTrial(weight, tries.back(), &trial);
  for (size_t i = 0; status.ok() && i < tries.size(); ++i) {
    status = Try(weight, tries[i], trial, own);
    if (!fault_.empty()) return status;
  }
  if (!absl::IsResourceExhausted(status)) return status;
  // What is known of few rows says nothing of more.
  const bool any = !choices_.empty() && choices_.back().IsOf(weight);
  choices_.push_back({.dtype = weight.dtype,
                      .n = weight.rows,
                      .k = weight.cols,
                      .rows = std::numeric_limits<int64_t>::max(),
                      .least_rows = any ? choices_.back().rows + 1 : 1});
  return absl::OkStatus();
}

absl::Status LibraryProducts::MakeTrial(const DeviceMatrix& weight, int64_t most_rows,
                                        Trial* trial) {
  const auto reserve = [&](DeviceBuffer* buffer, size_t bytes) {
    return ReserveScratch(device_, bytes, bytes, buffer);
  };
  const size_t out_bytes = static_cast<size_t>(most_rows * trial->out_stride) * sizeof(float);
  trial->x_stride = (weight.cols + 3) / 4 * 4;
  const size_t x_bytes = static_cast<size_t>(most_rows * trial->x_stride) * sizeof(float);
  absl::Status status = reserve(&workspace_, options_.workspace_bytes);
  status.Update(reserve(&trial->x, x_bytes));
  status.Update(reserve(&trial->out, out_bytes));
  status.Update(reserve(&trial->library_out, out_bytes));
  status.Update(reserve(&trial->flush, 2 * runtime_.properties().l2_bytes));
  if (!status.ok()) return status;
  // Random numbers, the same ones again and again: of no period that two rows would share.
  const std::vector<float> x =
      RandomFloats(std::min<int64_t>(kRandomFloats, static_cast<int64_t>(x_bytes / sizeof(float))));
  const size_t period = x.size() * sizeof(float);
  status =
      device_.CopyFromHost(trial->x.data(), reinterpret_cast<const std::byte*>(x.data()), period);
  for (size_t at = period; status.ok() && at < x_bytes; at += period) {
    status = device_.Copy(trial->x.data() + at, trial->x.data(), std::min(period, x_bytes - at));
  }
  for (std::unique_ptr<Event>* const event : {&trial->begin, &trial->end}) {
    if (!status.ok()) return status;
    absl::StatusOr<std::unique_ptr<Event>> made = runtime_.CreateTimingEvent();
    status = made.status();
    if (made.ok()) *event = *std::move(made);
  }
  return status;
}

absl::Status LibraryProducts::Try(const DeviceMatrix& weight, int64_t rows, const Trial& trial,
                                  const OwnProduct& own) {
  const auto at = std::find(options_.rows.begin(), options_.rows.end(), rows);
  Choice choice = {.dtype = weight.dtype,
                   .n = weight.rows,
                   .k = weight.cols,
                   .rows = rows,
                   .least_rows = at == options_.rows.begin() ? 1 : at[-1] + 1};
  const GemmLaunch by_own = trial.Launch(weight, rows, trial.out);
  const absl::StatusOr<float> own_ms = MedianMs(trial, [&] { return own(by_own); });
  if (!own_ms.ok()) return own_ms.status();
  choice.own_ms = *own_ms;

  const GemmLaunch by_library = trial.Launch(weight, rows, trial.library_out);
  const std::optional<ProductShape> shape = ShapeOf(by_library);
  std::vector<ProductAlgorithm> algorithms;
  if (shape.has_value()) {
    auto found = library_->Find(*shape, options_.workspace_bytes, options_.algorithms);
    if (found.ok()) algorithms = *std::move(found);
  }
  for (const ProductAlgorithm& algorithm : algorithms) {
    const absl::Status put = PutAnew(by_library, *shape, algorithm);
    if (absl::IsResourceExhausted(put)) return put;
    if (!put.ok()) continue;  // one that the library refuses after all is not used
    const absl::StatusOr<float> ms =
        MedianMs(trial, [&] { return PutAnew(by_library, *shape, algorithm); });
    if (!ms.ok()) return ms.status();
    if (choice.library_ms > 0 && *ms >= choice.library_ms) continue;
    choice.library_ms = *ms;
    if (*ms < options_.worth_it * choice.own_ms) choice.algorithm = algorithm;
  }
  if (choice.algorithm.has_value()) {
    // As it was timed, with sums added to what is there, and for a number of rows in between.
    const int64_t ragged = std::max(choice.least_rows, rows - rows / 4 - 1);
    for (const auto& [some_rows, accumulate] :
         {std::pair(rows, false), {rows, true}, {ragged, false}}) {
      absl::StatusOr<std::string> difference =
          Compare(weight, some_rows, accumulate, trial, *choice.algorithm, own);
      if (!difference.ok()) return difference.status();
      fault_ = *std::move(difference);
      if (!fault_.empty()) return absl::OkStatus();
    }
  }
  choices_.push_back(std::move(choice));
  return absl::OkStatus();
}

absl::StatusOr<float> LibraryProducts::MedianMs(const Trial& trial,
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

absl::StatusOr<std::string> LibraryProducts::Compare(const DeviceMatrix& weight, int64_t rows,
                                                     bool accumulate, const Trial& trial,
                                                     const ProductAlgorithm& algorithm,
                                                     const OwnProduct& own) {
  GemmLaunch by_own = trial.Launch(weight, rows, trial.out);
  GemmLaunch by_library = trial.Launch(weight, rows, trial.library_out);
  by_own.accumulate = by_library.accumulate = accumulate;
  const std::optional<ProductShape> shape = ShapeOf(by_library);
  if (!library_->Computes(*shape, algorithm, options_.workspace_bytes)) return std::string();
  // What was there is added to, or is nothing that a result may be.
  const uint8_t before = accumulate ? kFlushValue : kNoNumber;
  absl::Status status;
  for (const DeviceBuffer* const out : {&trial.out, &trial.library_out}) {
    if (status.ok()) status = runtime_.FillAsync(out->data(), before, out->bytes(), stream_);
  }
  if (status.ok()) status = own(by_own);
  if (status.ok()) status = PutAnew(by_library, *shape, algorithm);
  std::vector<float> want(static_cast<size_t>(weight.rows)), got(want.size());
  const size_t bytes = want.size() * sizeof(float);
  const int64_t step = std::max<int64_t>(1, rows * weight.rows / kMostCompared);
  for (int64_t row = 0; row < rows && status.ok(); row += row + step < rows ? step : 1) {
    const size_t at = static_cast<size_t>(row * trial.out_stride) * sizeof(float);
    status =
        device_.CopyToHost(reinterpret_cast<std::byte*>(want.data()), trial.out.data() + at, bytes);
    if (!status.ok()) break;
    status = device_.CopyToHost(reinterpret_cast<std::byte*>(got.data()),
                                trial.library_out.data() + at, bytes);
    if (!status.ok()) break;
    double largest = 0, most = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(double{want[i]}));
      most = Worse(most, std::abs(double{want[i]} - got[i]));
    }
    if (most <= kMostDifference * largest) continue;
    return absl::StrCat(std::string(name()),
                        " computes wrong results: ", std::string(Traits(weight.dtype).name),
                        " weight of ", weight.rows, " x ", weight.cols,
                        accumulate ? ", added to what is there" : "", ", row ", row, " of ", rows,
                        " is off by ", most, ", limit ", kMostDifference * largest);
  }
  if (!status.ok()) return status;
  return std::string();
}

// Behind the trials of a shape: the scratch that the library's products need, no more.
void LibraryProducts::KeepWhatIsNeeded() {
  size_t widened = 0;
  bool any = false;
  for (const Choice& choice : choices_) {
    if (!choice.algorithm.has_value()) continue;
    any = true;
    if (IsQuantized(choice.dtype)) {
      widened = std::max(widened, static_cast<size_t>(choice.n * choice.k) * sizeof(uint16_t));
    }
  }
  const auto keep = [&](DeviceBuffer* buffer, size_t bytes) {
    if (buffer->bytes() > bytes) *buffer = DeviceBuffer();
    // Where that fails products are ours until there is room.
    if (bytes > 0) ReserveScratch(device_, bytes, bytes, buffer).IgnoreError();
  };
  keep(&widened_, widened);
  if (!any) workspace_ = DeviceBuffer();
}

std::string LibraryProducts::Summary() const {
  const auto faster = std::count_if(choices_.begin(), choices_.end(), [](const Choice& choice) {
    return choice.algorithm.has_value();
  });
  return absl::StrCat("own kernels, and ", std::string(name()), " where it is faster (", faster,
                      " of ", choices_.size(), " sizes tried)");
}

bool LibraryProducts::Choice::IsOf(const DeviceMatrix& weight) const {
  return dtype == weight.dtype && n == weight.rows && k == weight.cols;
}

const LibraryProducts::Choice* LibraryProducts::ChoiceOrNull(const GemmLaunch& args) const {
  const Choice* best = nullptr;
  // Few rows are read once and not rounded at all.
  if (ChooseGemm(args.weight.dtype, args.rows) == GemmKernel::kFma) return nullptr;
  for (const Choice& choice : choices_) {
    if (!choice.IsOf(args.weight)) continue;
    // The least number of rows that is enough, else the largest there is. They ascend.
    best = &choice;
    if (choice.rows >= args.rows) break;
  }
  if (best != nullptr && args.rows < best->least_rows) return nullptr;
  return best;
}

size_t LibraryProducts::QuestionHash::operator()(const Question& question) const {
  const ProductShape& shape = question.shape;
  size_t hash = static_cast<size_t>(question.choice) * 2 + (shape.accumulate ? 1 : 0);
  for (const int64_t value : {shape.rows, shape.n, shape.k, shape.out_stride}) {
    hash = hash * 1'000'003 + static_cast<size_t>(value);
  }
  return hash;
}

LibraryProducts::Answer& LibraryProducts::Ask(const ProductShape& shape, const Choice& choice) {
  const Question question = {shape, &choice - choices_.data()};
  if (const auto known = asked_.find(question); known != asked_.end()) return known->second;
  if (asked_.size() == kMostAsked) asked_.clear();
  const bool computes = library_->Computes(shape, *choice.algorithm, options_.workspace_bytes);
  return asked_.emplace(question, Answer{computes}).first->second;
}

absl::Status LibraryProducts::Put(const GemmLaunch& args, const ProductShape& shape,
                                  const ProductAlgorithm& algorithm) {
  const absl::StatusOr<const std::byte*> x =
      rounded_x_.Have(shape.dtype, args.rows, args.weight.cols, args.x);
  if (!x.ok()) return x.status();
  const std::byte* weight = args.weight.data;
  if (const size_t widened_bytes = WidenedBytes(args.weight); widened_bytes > 0) {
    absl::Status status = ReserveScratch(device_, widened_bytes, widened_bytes, &widened_);
    if (!status.ok()) return status;
    LaunchWidenWeights(stream_, {args.weight, widened_.data()});
    weight = widened_.data();
  }
  return library_->Multiply(shape, algorithm, {*x, weight, args.out.data, workspace_.data()},
                            options_.workspace_bytes, stream_);
}

absl::Status LibraryProducts::PutAnew(const GemmLaunch& args, const ProductShape& shape,
                                      const ProductAlgorithm& algorithm) {
  rounded_x_.Forget();
  return Put(args, shape, algorithm);
}

bool LibraryProducts::Multiply(const GemmLaunch& args) {
  const Choice* const choice = ChoiceOrNull(args);
  if (choice == nullptr || !choice->algorithm.has_value()) return false;
  const std::optional<ProductShape> shape = ShapeOf(args);
  if (!shape.has_value()) return false;
  Answer& answer = Ask(*shape, *choice);
  if (!answer.computes) return false;
  if (answer.to_pass > 0) {
    --answer.to_pass;
    return false;
  }
  const absl::Status status = Put(args, *shape, *choice->algorithm);
  if (status.ok()) return true;
  Warn(status);
  // Without memory it is the step's turn to end and the next one's to have some.
  if (!absl::IsResourceExhausted(status)) answer.to_pass = options_.refused_products;
  return false;
}

void LibraryProducts::Warn(const absl::Status& refusal) {
  if (std::exchange(warned_, true) || !options_.warn) return;
  options_.warn(absl::StrCat("a product by ", std::string(name()), " was refused (",
                             std::string(refusal.message()),
                             ") and is computed by own kernels; not logged again"));
}

}  // namespace refrain::kernels::cuda
