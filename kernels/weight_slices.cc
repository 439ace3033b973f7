#include "kernels/weight_slices.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace refrain::kernels {
namespace {

absl::Status CheckSlice(const WeightSlice& slice, size_t index, int64_t cols) {
  const auto invalid = [&](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("weight slice ", index, ": ", what...));
  };
  if (slice.cols != cols) return invalid(slice.cols, " columns, slice 0 has ", cols);
  if (slice.rows < 0) return invalid(slice.rows, " rows");
  if (!RowBytes(slice.dtype, slice.cols).has_value()) {
    return invalid(slice.cols, " columns are no whole number of ",
                   std::string(Traits(slice.dtype).name), " blocks of ",
                   Traits(slice.dtype).block_elements);
  }
  if (slice.row_order.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(slice.row_order.size()) != slice.rows) {
    return invalid("row order of ", slice.row_order.size(), " entries for ", slice.rows, " rows");
  }
  for (const int32_t row : slice.row_order) {
    if (row < 0 || row >= slice.rows) {
      return invalid("row order names row ", row, " of ", slice.rows);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSlices(std::span<const WeightSlice> slices) {
  if (slices.empty()) return absl::InvalidArgumentError("weight of no slices");
  const int64_t cols = slices[0].cols;
  int64_t rows = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    if (absl::Status status = CheckSlice(slices[i], i, cols); !status.ok()) return status;
    rows += slices[i].rows;
  }
  if (rows == 0 || cols <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("weight of ", rows, " x ", cols, " elements"));
  }
  return absl::OkStatus();
}

}  // namespace refrain::kernels
