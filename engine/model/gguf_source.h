#ifndef REFRAIN_ENGINE_MODEL_GGUF_SOURCE_H_
#define REFRAIN_ENGINE_MODEL_GGUF_SOURCE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/weight_source.h"

namespace refrain::engine {

// The GGUF file at `path`, checked in full; of a model in several files any one of them, whose name
// says where the others are (GgufPartName): metadata is the first one's, tensors are all of theirs.
// One thread. Failure as WeightSource::Open, naming the file; InvalidArgument also where parts
// contradict their names or hold fewer tensors than they say.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenGguf(const std::string& path);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_GGUF_SOURCE_H_
