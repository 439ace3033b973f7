#ifndef REFRAIN_ENGINE_OPTIONS_H_
#define REFRAIN_ENGINE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace refrain::engine {

class EngineObserver;

enum class Policy : uint8_t { kFcfs, kLongestPrefix, kPriority };
enum class AttentionModeOption : uint8_t { kTwoPhase, kPaged };

// Whether weights are kept a second time for products of many rows (second_copy.h).
enum class SecondCopyOption { kAuto, kOn, kOff };

struct ModelOptions {
  std::string path;                // GGUF file or Hugging Face folder
  std::string served_name;         // "" = from the model
  std::string chat_template_file;  // Jinja, in place of the model's; "" = the model's own
  // Where requests leave sampling parameters out, those that the model's files ask for; else
  // OpenAI's.
  bool own_sampling_defaults = true;
  // What a model thinks is told apart from its answers, where its template shows how it thinks.
  bool finds_reasoning = true;
  SecondCopyOption second_copy = SecondCopyOption::kAuto;
};

struct BackendOptions {
  std::string kind = "auto";  // auto, cpu, cuda, reference
  int32_t device = 0;
  int32_t threads = 0;  // 0 = all cores that the process may use
  std::string isa = "auto";
  std::string compute_dtype = "auto";  // auto, f32, bf16, quantized, int8
  bool product_library = true;         // a GPU's, where it is there, faster and may be used
  int32_t most_rows = 0;               // of a step; 0 = not known
  // Told of what goes wrong later and costs speed, from the engine's thread; outlives it. May be
  // empty.
  std::function<void(std::string_view)> warn;
};

struct KvCacheOptions {
  int64_t memory_bytes = 0;    // 0 = a share of free memory
  int32_t chunk_tokens = 64;   // 16, 32, 64, 128
  std::string dtype = "auto";  // auto, f32, f16, bf16, fp8_e4m3, fp8 (the same)
  bool prefix_cache = true;
  std::string eviction = "reuse_rate";
  std::string isolation = "none";
};

struct LimitOptions {
  int32_t queued_requests = 1024;
  int64_t queued_tokens = 4 << 20;
  double request_timeout_s = 0;  // 0 = none
  int32_t n = 128;               // choices per request
  // Host memory that the server's limits let bodies and connections take, for a warning at start;
  // 0 = not known.
  int64_t server_bytes = 0;
};

// The engine's part of the configuration (DESIGN section 10), already checked for form; names that
// a module resolves itself (backend, isa, dtypes) stay strings until that module sees them.
struct EngineOptions {
  ModelOptions model;
  BackendOptions backend;
  KvCacheOptions kv_cache;
  LimitOptions limits;
  int32_t max_sequences = 64;       // running at once
  int32_t step_token_budget = 512;  // tokens computed per step
  int32_t max_context_tokens = 0;   // 0 = the model's, or what the KV cache holds if that is less
  Policy policy = Policy::kFcfs;
  bool reproducible = false;
  AttentionModeOption attention_mode = AttentionModeOption::kTwoPhase;
  double stall_s = 300;  // without a finished step until it counts as stalled; 0 = never
  int32_t encode_threads = 1;
  EngineObserver* observer = nullptr;  // is told what happens; outlives the engine; may be null
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_OPTIONS_H_
