#include "kernels/cpu/search_copy.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

namespace refrain::kernels::cpu {
namespace {

constexpr int64_t kPanelStepBytes = int64_t{kTileRows} * kByteTileK;
constexpr float kMostByte = 127;
constexpr int kZero = 128;
// Of the bounds, for what is lost where they are computed: weights and norms are floats.
constexpr double kLittleMore = 1.001;

struct Error {
  double squares = 0;
  float scale = 0;
};

// Row `lane` of a panel.
Error PackRow(const std::vector<float>& row, int lane, uint8_t* panel) {
  float most = 0;
  for (const float weight : row) most = std::max(most, std::abs(weight));
  Error error{.squares = 0, .scale = most / kMostByte};
  const float by = error.scale > 0 ? 1 / error.scale : 0;
  const bool is_finite = std::isfinite(by);  // else of so little that all bytes are zero
  for (int64_t k = 0; k < std::ssize(row); ++k) {
    const float scaled = std::clamp(is_finite ? row[k] * by : 0.0f, -kMostByte, kMostByte);
    const auto byte = static_cast<int>(scaled + (scaled < 0 ? -0.5f : 0.5f));
    const double off = static_cast<double>(error.scale) * byte - row[k];
    error.squares += off * off;
    panel[k / kByteTileK * kPanelStepBytes + k % kByteTileK / 4 * (4 * kTileRows) + lane * 4 +
          k % 4] = static_cast<uint8_t>(byte + kZero);
  }
  return error;
}

}  // namespace

absl::StatusOr<SearchCopy> SearchCopy::Make(int64_t n, int64_t k,
                                            const std::function<void(int64_t, float*)>& row,
                                            const ProductBounds& exact, Device& device,
                                            ThreadPool& pool) {
  assert(k <= kMaxByteK && std::ssize(exact.norms) == n);
  SearchCopy copy;
  const int64_t panels = (n + kTileRows - 1) / kTileRows;
  copy.steps_ = (k + kByteTileK - 1) / kByteTileK;
  const int64_t panel_bytes = copy.steps_ * kPanelStepBytes;
  absl::StatusOr<DeviceBuffer> memory = device.Allocate(panels * panel_bytes, /*huge_pages=*/true);
  if (!memory.ok()) return memory.status();
  copy.memory_ = *std::move(memory);
  copy.scales_.resize(panels * kTileRows);
  copy.bounds_ = {std::vector<float>(n), exact.terms};
  auto* const data = reinterpret_cast<uint8_t*>(copy.memory_.data());
  pool.ParallelFor(panels, /*grain=*/4, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(k);
    std::memset(data + begin * panel_bytes, kZero, (end - begin) * panel_bytes);
    for (int64_t i = begin * kTileRows; i < std::min(end * kTileRows, n); ++i) {
      row(i, weights.data());
      const Error error =
          PackRow(weights, static_cast<int>(i % kTileRows), data + i / kTileRows * panel_bytes);
      copy.scales_[i] = error.scale;
      copy.bounds_.norms[i] = static_cast<float>(
          (std::sqrt(error.squares) + kByteShare * exact.norms[i]) * kLittleMore);
    }
  });
  return copy;
}

BytePanels SearchCopy::panels() const {
  return {reinterpret_cast<const uint8_t*>(memory_.data()), scales_.data(), steps_};
}

}  // namespace refrain::kernels::cpu
