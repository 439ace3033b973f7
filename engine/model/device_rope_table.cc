#include "engine/model/device_rope_table.h"

#include <algorithm>
#include <cstddef>

#include "engine/model/rope_table.h"

namespace refrain::engine {
namespace {

// Of cos, or of sin.
size_t TableBytes(const RopeConfig& rope, int32_t positions) {
  return static_cast<size_t>(positions) * static_cast<size_t>(rope.dim / 2) * sizeof(float);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRopeTable>> DeviceRopeTable::Create(
    kernels::Device& device, const RopeConfig& rope, std::vector<float> freq_factors,
    int32_t positions) {
  absl::StatusOr<kernels::DeviceBuffer> angles =
      device.Allocate(2 * TableBytes(rope, positions), false);
  if (!angles.ok()) return angles.status();
  return std::unique_ptr<DeviceRopeTable>(
      new DeviceRopeTable(device, rope, std::move(freq_factors), positions, *std::move(angles)));
}

DeviceRopeTable::DeviceRopeTable(kernels::Device& device, const RopeConfig& rope,
                                 std::vector<float> freq_factors, int32_t positions,
                                 kernels::DeviceBuffer angles)
    : device_(device),
      rope_(rope),
      freq_factors_(std::move(freq_factors)),
      angles_(std::move(angles)),
      view_{.cos = reinterpret_cast<const float*>(angles_.data()),
            .sin = reinterpret_cast<const float*>(angles_.data() + TableBytes(rope, positions)),
            .max_positions = positions,
            .rope_dim = rope.dim},
      filled_(static_cast<size_t>((positions + kPiecePositions - 1) / kPiecePositions), false) {}

void DeviceRopeTable::Fill(std::span<const int32_t> positions) {
  for (const int32_t position : positions) {
    const int32_t piece = position / kPiecePositions;
    if (filled_[static_cast<size_t>(piece)]) continue;
    const int32_t begin = piece * kPiecePositions;
    const RopeAngles angles = MakeRopeAngles(
        rope_, freq_factors_, begin, std::min(kPiecePositions, view_.max_positions - begin));
    std::byte* to = angles_.data() + TableBytes(rope_, begin);
    for (const std::vector<float>* values : {&angles.cos, &angles.sin}) {
      const absl::Status status = device_.CopyFromHost(
          to, reinterpret_cast<const std::byte*>(values->data()), values->size() * sizeof(float));
      if (!status.ok()) return;
      to += TableBytes(rope_, view_.max_positions);
    }
    filled_[static_cast<size_t>(piece)] = true;
  }
}

}  // namespace refrain::engine
