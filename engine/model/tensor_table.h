#ifndef REFRAIN_ENGINE_MODEL_TENSOR_TABLE_H_
#define REFRAIN_ENGINE_MODEL_TENSOR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "engine/model/tensor_role.h"
#include "kernels/dtype.h"

namespace refrain::engine {

// A tensor as a file lists it. The reader has checked that `data` lies inside of the file and has
// the size of shape and type.
struct SourceTensor {
  std::string_view name;
  std::string_view type_name;           // as the format calls it, for messages
  std::optional<kernels::DType> dtype;  // nullopt: a type we do not run; `data` is empty then
  std::vector<int64_t> shape;           // outermost first
  std::span<const std::byte> data;
};

enum class TensorNaming : uint8_t { kGguf, kHuggingFace };

// Which tensor of a file plays which role: the one place that knows tensor names.
//
// It reads no bytes of any tensor and does not own them. Immutable after Bind: any thread.
class TensorTable {
 public:
  // `config` has passed Validate. Refuses a missing tensor, a wrong shape, an element type that is
  // not run, two tensors of one name, and a tensor that the architecture does not have (running
  // without it would give wrong answers), naming it. A head beside tied embeddings is taken for a
  // copy of the embedding, and for the embedding itself where that is missing.
  static absl::StatusOr<TensorTable> Bind(const ModelConfig& config, TensorNaming naming,
                                          std::span<const SourceTensor> tensors);

  absl::StatusOr<WeightView> Get(TensorRole role, int layer) const;
  bool Has(TensorRole role, int layer) const;

  // "210 q4_1, 1 q8_0, 61 f32"
  std::string DescribeTypes() const;

 private:
  explicit TensorTable(int num_layers);
  std::optional<size_t> IndexOf(TensorRole role, int layer) const;

  int num_layers_;
  std::vector<WeightView> views_;  // data == nullptr: absent
};

// The name of a role's tensor, "blk.3.attn_q.weight".
std::string TensorName(TensorNaming naming, TensorRole role, int layer);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_TENSOR_TABLE_H_
