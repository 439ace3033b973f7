#ifndef REFRAIN_ENGINE_MODEL_HF_FOLDER_H_
#define REFRAIN_ENGINE_MODEL_HF_FOLDER_H_

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/weight_source.h"

namespace refrain::engine {

// A Hugging Face folder: config.json with model.safetensors, or else with the shards that
// model.safetensors.index.json lists. Checked in full before it is returned.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenHuggingFaceFolder(const std::string& folder);

// The shard files that an index names. A name that is not a plain *.safetensors file name (a path,
// "..") is refused: a model must not reach outside of its folder.
absl::StatusOr<std::set<std::string>> ParseShardIndex(std::string_view index_json);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_HF_FOLDER_H_
