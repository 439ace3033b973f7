#ifndef REFRAIN_ENGINE_MODEL_WEIGHT_SOURCE_H_
#define REFRAIN_ENGINE_MODEL_WEIGHT_SOURCE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "engine/model/sampling_defaults.h"
#include "engine/model/tensor_role.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// What a model's files say about its text side. Either `spec` is complete, or
// `sentencepiece_model` holds the bytes of a tokenizer.model and `spec` has only what that file
// lacks (chat template, tokens that were added, special ids, end_of_generation).
struct TokenizerSource {
  TokenizerSpec spec;
  std::string sentencepiece_model;
};

// A model's weights and description as they lie on disk: a GGUF file, or several, or a Hugging Face
// folder.
//
// It does not convert, reorder or copy weights; packing them is the back end's. Opening checks
// every offset and size against the files, that each tensor the architecture needs is there with
// the right shape and a supported element type, and that there is no tensor it does not know; so
// a view from Get never points outside of a file. Called at load by one thread; after Open all
// methods are const and safe from any thread. Files are mapped read-only and must not be shortened
// while this lives (as with any mapping, that would raise SIGBUS); replacing a file by rename is
// fine.
//
//   ASSIGN_OR_RETURN(auto source, WeightSource::Open("model.gguf"));
//   ASSIGN_OR_RETURN(WeightView q, source->Get(TensorRole::kAttnQ, layer));
//   ... pack ...
//   source.reset();  // unmaps the files
class WeightSource {
 public:
  // `path` is a GGUF file (of several any one) or a folder with config.json. NotFound: no such
  // file. InvalidArgument: the file is damaged or contradicts itself. Unimplemented: an
  // architecture, element type or option that this build does not run; the message names it.
  static absl::StatusOr<std::unique_ptr<WeightSource>> Open(const std::string& path);

  virtual ~WeightSource() = default;

  virtual const ModelConfig& config() const = 0;

  // One line for the log: format, name, number of tensors per element type, size.
  virtual const std::string& description() const = 0;

  // `layer` is read for per-layer roles only. Get: NotFound for an optional tensor that the source
  // lacks; OutOfRange for a layer the model does not have.
  virtual absl::StatusOr<WeightView> Get(TensorRole role, int layer = 0) const = 0;
  virtual bool Has(TensorRole role, int layer = 0) const = 0;
  // As its files call it, for messages: "blk.3.attn_q.weight".
  virtual std::string NameOf(TensorRole role, int layer = 0) const = 0;

  // Reads the tokenizer's definition; each call reads it anew, keep the result. NotFound: the model
  // has none.
  virtual absl::StatusOr<TokenizerSource> ReadTokenizer() const = 0;

  // InvalidArgument: a value that cannot be asked for.
  virtual absl::StatusOr<SamplingDefaults> ReadSamplingDefaults() const = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_WEIGHT_SOURCE_H_
