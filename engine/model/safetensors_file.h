#ifndef REFRAIN_ENGINE_MODEL_SAFETENSORS_FILE_H_
#define REFRAIN_ENGINE_MODEL_SAFETENSORS_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tensor_table.h"

namespace refrain::engine {

// The tensors of one safetensors file: a 64-bit header length, a JSON header, the data.
//
// Parse checks the header's size and form, and that every tensor lies inside of the data, has the
// size of its shape and type, and overlaps no other; it copies names only, tensors are views into
// `bytes`, which must outlive this. Element types that are not run are listed without a DType and
// refused when they are needed. Immutable after Parse: any thread. InvalidArgument names the
// tensor and what is wrong.
class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Parse(std::span<const std::byte> bytes);

  // Sorted by name.
  const std::vector<SourceTensor>& tensors() const { return tensors_; }

 private:
  std::vector<std::unique_ptr<const std::string>> strings_;  // what names and types point to
  std::vector<SourceTensor> tensors_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_SAFETENSORS_FILE_H_
