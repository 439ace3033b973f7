#ifndef REFRAIN_ENGINE_MODEL_ARCHITECTURE_H_
#define REFRAIN_ENGINE_MODEL_ARCHITECTURE_H_

#include <string>
#include <string_view>

namespace refrain::engine {

// The members of the Llama family that are run, by the name that both formats have for them, and
// what tells them apart whatever their files say.
struct Architecture {
  const char* name;         // config.json's model_type, GGUF's general.architecture
  const char* class_name;   // in config.json's architectures
  bool qkv_bias = false;    // as ModelConfig
  bool qk_norm = false;     // as ModelConfig
  bool has_nope = false;    // some layers are without RoPE
  bool in_gguf = true;      // else GGUF files call it llama
  bool reordered = false;   // converters to GGUF make adjacent pairs of rotated rows
  int kv_heads = 0;         // where config.json lacks the key; 0: as many as heads
  int head_dim = 0;         // likewise; 0: hidden size over heads
  bool tied = false;        // likewise
  double rope_theta = 1e4;  // likewise
};

inline constexpr Architecture kArchitectures[] = {
    {.name = "llama", .class_name = "LlamaForCausalLM", .reordered = true},
    {.name = "mistral", .class_name = "MistralForCausalLM", .in_gguf = false, .kv_heads = 8},
    {.name = "qwen2", .class_name = "Qwen2ForCausalLM", .qkv_bias = true, .kv_heads = 32},
    {.name = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .qk_norm = true,
     .kv_heads = 32,
     .head_dim = 128},
    {.name = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .has_nope = true,
     .reordered = true,
     .kv_heads = 4,
     .tied = true,
     .rope_theta = 2e6},
};

inline const Architecture* FindArchitectureOrNull(std::string_view name) {
  for (const Architecture& known : kArchitectures) {
    if (name == known.name) return &known;
  }
  return nullptr;
}

// "llama, mistral, ..." for messages.
inline std::string ArchitectureNames(bool in_gguf) {
  std::string names;
  for (const Architecture& known : kArchitectures) {
    if (in_gguf && !known.in_gguf) continue;
    names += names.empty() ? "" : ", ";
    names += known.name;
  }
  return names;
}

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_ARCHITECTURE_H_
