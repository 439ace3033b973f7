#ifndef REFRAIN_ENGINE_GRAMMAR_OUTPUT_GRAMMAR_H_
#define REFRAIN_ENGINE_GRAMMAR_OUTPUT_GRAMMAR_H_

#include "absl/status/statusor.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/output_format.h"
#include "engine/text/encode_pace.h"
#include "engine/text/reasoning_format.h"
#include "engine/text/tool_format.h"

namespace refrain::engine {

// Where an output begins, and how its model calls tools.
struct OutputPlace {
  ReasoningStart reasoning = ReasoningStart::kBehind;
  ToolFormat tools = ToolFormat::kNone;
  friend bool operator==(const OutputPlace&, const OutputPlace&) = default;
};

// The language of the outputs of a format. A thought in front of the answer is free: one that the
// prompt has opened comes to its closing tag, and where the model opens thoughts itself it may.
// Tags may be written as text or as control tokens.
//
// Pure; any thread. `pace` may hold it up or stop it, CANCELLED, and be null. Failure:
// INVALID_ARGUMENT that begins with the format's field, for what a schema, pattern or grammar says
// that is not understood, what is too large, and calls of tools where the model's way is not known.
absl::StatusOr<Grammar> MakeOutputGrammar(const OutputFormat& format, const OutputPlace& place,
                                          EncodePace* pace = nullptr);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_OUTPUT_GRAMMAR_H_
