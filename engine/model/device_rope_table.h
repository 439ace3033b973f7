#ifndef REFRAIN_ENGINE_MODEL_DEVICE_ROPE_TABLE_H_
#define REFRAIN_ENGINE_MODEL_DEVICE_ROPE_TABLE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace refrain::engine {

// The angles of a model's positions in device memory, filled in as positions are reached for the
// first time: a table over all of a long context would cost memory and time at the start.
//
// Engine thread (the model's); the device outlives it. Failure: Create when there is no memory. A
// copy that fails leaves its piece to be filled by the next call; the device's back end fails the
// step.
class DeviceRopeTable {
 public:
  static constexpr int32_t kPiecePositions = 512;  // filled at once

  // Room for the positions [0, positions). `freq_factors` as RopeFrequencies.
  static absl::StatusOr<std::unique_ptr<DeviceRopeTable>> Create(kernels::Device& device,
                                                                 const RopeConfig& rope,
                                                                 std::vector<float> freq_factors,
                                                                 int32_t positions);

  // Before an operation is told of the table: its rows at these positions are there from now on.
  void Fill(std::span<const int32_t> positions);

  const kernels::RopeTable& view() const { return view_; }

 private:
  DeviceRopeTable(kernels::Device& device, const RopeConfig& rope, std::vector<float> freq_factors,
                  int32_t positions, kernels::DeviceBuffer angles);

  kernels::Device& device_;
  const RopeConfig rope_;
  const std::vector<float> freq_factors_;
  const kernels::DeviceBuffer angles_;  // cos of every position, then sin
  kernels::RopeTable view_;
  std::vector<bool> filled_;  // [pieces]
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_DEVICE_ROPE_TABLE_H_
