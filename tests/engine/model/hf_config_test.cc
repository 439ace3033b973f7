#include "engine/model/hf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/support/expect_error.h"

namespace refrain::engine {
namespace {

using refrain::testing::ExpectError;
using Json = nlohmann::json;

// The published config.json of a model of this kind, shortened.
Json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 2048},
          {"intermediate_size", 8192},
          {"num_hidden_layers", 16},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"head_dim", 64},
          {"vocab_size", 128256},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-05},
          {"rope_theta", 500000.0},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", true}};
}

Json Mistral() {
  Json json = Llama();
  json["architectures"] = {"MistralForCausalLM"};
  json["model_type"] = "mistral";
  return json;
}

Json Changed(Json json, const char* key, const Json& value) {
  json[key] = value;
  return json;
}

ModelConfig Read(const Json& json) {
  const auto config = ParseHuggingFaceConfig(json.dump());
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

void ExpectRefused(const Json& json, absl::StatusCode code, std::string_view text) {
  ExpectError(ParseHuggingFaceConfig(json.dump()).status(), code, text);
}

TEST(HfConfigTest, WithoutKvHeadsMistralHasEight) {
  const auto without = [](Json json) {
    json.erase("num_key_value_heads");
    return json;
  };
  EXPECT_EQ(Read(without(Mistral())).num_kv_heads, 8);
  EXPECT_EQ(Read(Changed(Mistral(), "num_key_value_heads", nullptr)).num_kv_heads, 32);
  EXPECT_EQ(Read(without(Llama())).num_kv_heads, 32);
  EXPECT_EQ(Read(Changed(Llama(), "num_key_value_heads", nullptr)).num_kv_heads, 32);
}

Json Qwen(const char* type, const char* class_name) {
  Json json = Llama();
  json["architectures"] = {class_name};
  json["model_type"] = type;
  json["use_sliding_window"] = false;
  json["sliding_window"] = 4096;
  json["max_window_layers"] = 4;
  return json;
}
Json Qwen2() { return Qwen("qwen2", "Qwen2ForCausalLM"); }
Json Qwen3() { return Qwen("qwen3", "Qwen3ForCausalLM"); }

TEST(HfConfigTest, ReadsQwen) {
  const ModelConfig qwen2 = Read(Qwen2()), qwen3 = Read(Qwen3()), llama = Read(Llama());
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.qk_norm);
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  EXPECT_FALSE(llama.qk_norm || llama.qkv_bias);
  EXPECT_EQ(qwen2.sliding_window_tokens, 0);
  // Absent keys: 64 heads of 32, where nothing else is said.
  for (Json json : {Qwen2(), Qwen3()}) {
    json["num_attention_heads"] = 64;
    json.erase("head_dim");
    EXPECT_EQ(Read(json).head_dim, json["model_type"] == "qwen3" ? 128 : 32);
    json["head_dim"] = nullptr;
    EXPECT_EQ(Read(json).head_dim, 32);
    json.erase("num_key_value_heads");
    EXPECT_EQ(Read(json).num_kv_heads, 32);
    json["num_key_value_heads"] = nullptr;
    EXPECT_EQ(Read(json).num_kv_heads, 64);
  }
  // Qwen2 has its biases whatever the file says; Qwen3 may have other ones.
  EXPECT_TRUE(Read(Changed(Qwen2(), "attention_bias", true)).qkv_bias);
  EXPECT_TRUE(Read(Changed(Qwen2(), "attention_bias", false)).qkv_bias);
  const auto unimplemented = absl::StatusCode::kUnimplemented;
  ExpectRefused(Changed(Qwen3(), "attention_bias", true), unimplemented, "attention_bias");
  ExpectRefused(Changed(Qwen2(), "layer_types", {"full_attention", "sliding_attention"}),
                unimplemented, "layer_types");
}

TEST(HfConfigTest, AWindowOfSomeLayersIsRefusedWhereItIsOne) {
  const Json windowed = Changed(Qwen2(), "use_sliding_window", true);  // 4 of 16 layers have none
  const auto unimplemented = absl::StatusCode::kUnimplemented;
  ExpectRefused(windowed, unimplemented, "use_sliding_window");
  EXPECT_EQ(Read(Changed(windowed, "sliding_window", nullptr)).sliding_window_tokens, 0);
  EXPECT_EQ(Read(Changed(windowed, "max_window_layers", 16)).sliding_window_tokens, 0);
  ExpectRefused(Changed(windowed, "max_window_layers", 15), unimplemented, "use_sliding_window");
  Json types = Json::array();
  for (int i = 0; i < 16; ++i) types.push_back("full_attention");
  EXPECT_EQ(Read(Changed(windowed, "layer_types", types)).sliding_window_tokens, 0);
  // Mistral's is of all layers, whatever that key says.
  Json mistral = Changed(Mistral(), "use_sliding_window", true);
  mistral["sliding_window"] = 100;
  EXPECT_EQ(Read(mistral).sliding_window_tokens, 100);
}

TEST(HfConfigTest, ReadsSmolLm3) {
  Json json = Llama();
  json["architectures"] = {"SmolLM3ForCausalLM"};
  json["model_type"] = "smollm3";
  json["num_hidden_layers"] = 5;
  for (const char* key : {"num_key_value_heads", "tie_word_embeddings", "rope_theta"}) {
    json.erase(key);
  }
  const ModelConfig defaults = Read(json);
  EXPECT_EQ(defaults.nope_layers, (std::vector<bool>{false, false, false, true, false}));
  EXPECT_TRUE(defaults.rotates(2));
  EXPECT_FALSE(defaults.rotates(3));
  EXPECT_EQ(defaults.num_kv_heads, 4);
  EXPECT_TRUE(defaults.tied_embeddings);
  EXPECT_EQ(defaults.rope.theta, 2e6);
  EXPECT_EQ(Read(Changed(json, "no_rope_layer_interval", 2)).nope_layers,
            (std::vector<bool>{false, true, false, true, false}));
  EXPECT_EQ(Read(Changed(json, "no_rope_layers", {0, 1, 1, 0, 1, 0})).nope_layers,
            (std::vector<bool>{true, false, false, true, false}));
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const char* const text = "must be a list of 5 of 0 and 1";
  ExpectRefused(Changed(json, "no_rope_layers", {1, 1, 1, 0}), invalid, text);
  ExpectRefused(Changed(json, "no_rope_layers", {1, 1, 1, 0, 2}), invalid, text);
  ExpectRefused(Changed(json, "no_rope_layers", 4), invalid, text);
  ExpectRefused(Changed(json, "no_rope_layer_interval", 0), invalid, "no_rope_layer_interval is 0");
  EXPECT_TRUE(Read(Llama()).nope_layers.empty());
}

TEST(HfConfigTest, ReadsLlama) {
  const ModelConfig config = Read(Llama());
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.num_layers, 16);
  EXPECT_EQ(config.hidden_size, 2048);
  EXPECT_EQ(config.num_heads, 32);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.ffn_size, 8192);
  EXPECT_EQ(config.vocab_size, 128256);
  EXPECT_EQ(config.max_context_tokens, 131072);
  EXPECT_EQ(config.rms_eps, 1e-5);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rope.dim, 64);
  EXPECT_EQ(config.rope.source_pairs, RopePairs::kHalfSplit);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(config.sliding_window_tokens, 0);
  EXPECT_TRUE(config.tied_embeddings);
}

TEST(HfConfigTest, FillsInTheDefaultsOfTransformers) {
  Json json = Llama();
  for (const char* key : {"num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta",
                          "tie_word_embeddings", "hidden_act", "architectures"}) {
    json.erase(key);
  }
  const ModelConfig config = Read(json);
  EXPECT_EQ(config.num_kv_heads, 32);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rms_eps, 1e-6);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(Read(Changed(Llama(), "head_dim", nullptr)).head_dim, 64);
}

TEST(HfConfigTest, ReadsTheSlidingWindowOfMistralOnly) {
  EXPECT_EQ(Read(Changed(Mistral(), "sliding_window", 1024)).sliding_window_tokens, 1024);
  EXPECT_EQ(Read(Changed(Mistral(), "sliding_window", nullptr)).sliding_window_tokens, 0);
  EXPECT_EQ(Read(Mistral()).sliding_window_tokens, 4096);
  EXPECT_EQ(Read(Changed(Llama(), "sliding_window", 1024)).sliding_window_tokens, 0);
}

TEST(HfConfigTest, ReadsLlama3ScalingInBothForms) {
  const Json scaling = {{"factor", 32.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192},
                        {"rope_type", "llama3"}};
  Json newer = Llama();
  newer.erase("rope_theta");
  newer["rope_parameters"] = scaling;
  newer["rope_parameters"]["rope_theta"] = 500000.0;
  for (const Json& json : {Changed(Llama(), "rope_scaling", scaling), newer}) {
    const RopeConfig rope = Read(json).rope;
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
    EXPECT_EQ(rope.factor, 32.0);
    EXPECT_EQ(rope.low_freq_factor, 1.0);
    EXPECT_EQ(rope.high_freq_factor, 4.0);
    EXPECT_EQ(rope.original_context_tokens, 8192);
  }
}

TEST(HfConfigTest, ReadsOtherScalings) {
  EXPECT_EQ(Read(Changed(Llama(), "rope_scaling", nullptr)).rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(Read(Changed(Llama(), "rope_parameters", {{"rope_type", "default"}})).rope.scaling,
            RopeScaling::kNone);
  const RopeConfig linear =
      Read(Changed(Llama(), "rope_scaling", {{"type", "linear"}, {"factor", 4}})).rope;
  EXPECT_EQ(linear.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.factor, 4.0);
  Json yarn = {{"type", "yarn"}, {"factor", 16.0}, {"original_max_position_embeddings", 4096}};
  RopeConfig rope = Read(Changed(Llama(), "rope_scaling", yarn)).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.original_context_tokens, 4096);
  EXPECT_EQ(rope.beta_fast, 32.0);
  EXPECT_EQ(rope.beta_slow, 1.0);
  EXPECT_DOUBLE_EQ(rope.attention_factor, 0.1 * std::log(16.0) + 1.0);
  yarn["mscale"] = 0.707;
  yarn["mscale_all_dim"] = 1.0;
  rope = Read(Changed(Llama(), "rope_scaling", yarn)).rope;
  EXPECT_DOUBLE_EQ(rope.attention_factor,
                   (0.0707 * std::log(16.0) + 1.0) / (0.1 * std::log(16.0) + 1.0));
  EXPECT_TRUE(rope.round_ramp);
  yarn["attention_factor"] = 1.5;
  yarn["truncate"] = false;
  rope = Read(Changed(Llama(), "rope_scaling", yarn)).rope;
  EXPECT_EQ(rope.attention_factor, 1.5);
  EXPECT_FALSE(rope.round_ramp);
}

// As Qwen's recipe for long prompts has it: a file that is otherwise as it was.
TEST(HfConfigTest, ScalingStretchesTheContext) {
  Json json = Changed(Llama(), "max_position_embeddings", 4096);
  json["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(Read(json).max_context_tokens, 4096);
  json["rope_scaling"]["original_max_position_embeddings"] = 4096;
  EXPECT_EQ(Read(json).max_context_tokens, 16384);
  json["rope_scaling"]["original_max_position_embeddings"] = 512;
  EXPECT_EQ(Read(json).max_context_tokens, 4096);
  // Whether 4,096 holds the factor already, linear scaling does not tell.
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(Read(json).max_context_tokens, 4096);
  EXPECT_EQ(Read(json).stretched_context_tokens(), 16384);
  json.erase("rope_scaling");
  EXPECT_EQ(Read(json).stretched_context_tokens(), 4096);
}

// Beside the scaling, as some models have it, it means the same; two that differ mean nothing.
TEST(HfConfigTest, FindsTheOriginalContextBesideTheScaling) {
  const char* const key = "original_max_position_embeddings";
  for (const char* type : {"yarn", "llama3"}) {
    Json json = Llama();
    json["rope_scaling"] = {
        {"type", type}, {"factor", 4.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
    EXPECT_EQ(Read(json).rope.original_context_tokens, 131072);
    json[key] = 4096;
    EXPECT_EQ(Read(json).rope.original_context_tokens, 4096);
    json["rope_scaling"][key] = 4096;
    EXPECT_EQ(Read(json).rope.original_context_tokens, 4096);
    json["rope_scaling"][key] = 8192;
    ExpectRefused(json, absl::StatusCode::kInvalidArgument,
                  "original_max_position_embeddings is 4096, in the rope scaling it is 8192");
    json["rope_scaling"]["type"] = "linear";  // which does not ask for it
    Read(json);
  }
}

// As transformers 5 reads both: rope_scaling, unless it is empty; theta of that one, or beside it.
TEST(HfConfigTest, RopeScalingComesBeforeRopeParameters) {
  Json json = Changed(Llama(), "rope_parameters",
                      {{"rope_type", "linear"}, {"factor", 3.0}, {"rope_theta", 1000.0}});
  EXPECT_EQ(Read(json).rope.factor, 3.0);
  for (const Json& empty : {Json(nullptr), Json::object()}) {
    json["rope_scaling"] = empty;
    EXPECT_EQ(Read(json).rope.factor, 3.0);
    EXPECT_EQ(Read(json).rope.theta, 1000.0);
  }
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(Read(json).rope.factor, 2.0);
  EXPECT_EQ(Read(json).rope.theta, 500000.0);
}

TEST(HfConfigTest, TakesLayersThatAreAllAlike) {
  const Json full = {"full_attention", "full_attention"};
  const Json sliding = {"sliding_attention", "sliding_attention"};
  EXPECT_EQ(Read(Changed(Llama(), "layer_types", full)).sliding_window_tokens, 0);
  EXPECT_EQ(Read(Changed(Llama(), "layer_types", nullptr)).sliding_window_tokens, 0);
  const Json window = Changed(Mistral(), "sliding_window", 64);
  EXPECT_EQ(Read(Changed(window, "layer_types", sliding)).sliding_window_tokens, 64);
  const auto refused = [](const Json& json, std::string_view text) {
    ExpectRefused(json, absl::StatusCode::kUnimplemented, text);
  };
  refused(Changed(window, "layer_types", full), "\"full_attention\"");
  refused(Changed(Llama(), "layer_types", sliding), "\"sliding_attention\"");
  refused(Changed(window, "layer_types", {"sliding_attention", "full_attention"}), "layer_types");
  refused(Changed(Llama(), "layer_types", {"full_attention", "linear_attention"}),
          "\"linear_attention\"");
  refused(Changed(Llama(), "layer_types", "full_attention"), "layer_types");
}

// Keys of relatives of this family that compute something else; values that change nothing pass.
TEST(HfConfigTest, RefusesVariantsByKeyAndValue) {
  const auto refused = [](const char* key, const Json& value, std::string_view text) {
    ExpectRefused(Changed(Llama(), key, value), absl::StatusCode::kUnimplemented, text);
  };
  refused("logits_scaling", 8.0, "logits_scaling is 8.0");
  refused("logit_scale", 0.25, "logit_scale is 0.25");
  refused("embedding_multiplier", 12, "embedding_multiplier is 12");
  refused("residual_multiplier", 0.22, "residual_multiplier");
  refused("attention_multiplier", 0.0078125, "attention_multiplier");
  refused("attn_logit_softcapping", 50.0, "attn_logit_softcapping");
  refused("final_logit_softcapping", 30.0, "final_logit_softcapping");
  refused("clip_qkv", 8.0, "clip_qkv");
  refused("is_causal", false, "is_causal is false");
  refused("num_local_experts", 8, "num_local_experts is 8");
  refused("no_rope_layers", {1, 1, 1, 0}, "no_rope_layers");
  refused("per_layer_config", {{"0", {{"head_dim", 8}}}}, "per_layer_config");
  refused("partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5");
  refused("rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}, "\"full_attention\"");
  const Json neutral = {{"logits_scaling", 1},
                        {"logit_scale", 1.0},
                        {"final_logit_softcapping", nullptr},
                        {"is_causal", true},
                        {"num_local_experts", 0},
                        {"no_rope_layers", Json::array()},
                        {"per_layer_config", Json::object()},
                        {"partial_rotary_factor", 1.0},
                        {"pretraining_tp", 2}};
  for (const auto& [key, value] : neutral.items()) {
    Read(Changed(Llama(), key.c_str(), value));
  }
}

TEST(HfConfigTest, RefusesWhatItDoesNotRun) {
  using enum absl::StatusCode;
  const auto refused = [](const char* key, const Json& value, std::string_view text) {
    ExpectRefused(Changed(Llama(), key, value), kUnimplemented, text);
  };
  refused("model_type", "gemma3", "\"gemma3\"");
  refused("model_type", nullptr, "model_type");
  refused("model_type", "granite", "\"granite\"");
  refused("model_type", "mixtral", "\"mixtral\"");
  refused("architectures", {"LlamaForSequenceClassification"}, "LlamaForCausalLM");
  refused("architectures", {"LlamaForSequenceClassification"}, "LlamaForSequenceClassification");
  refused("attention_bias", true, "attention_bias");
  refused("mlp_bias", true, "mlp_bias");
  refused("hidden_act", "gelu", "gelu");
  refused("quantization_config", {{"quant_method", "awq"}}, "quantization_config");
  refused("quantization_config", {{"quant_method", "awq"}}, "\"awq\"");
  refused("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}, "dynamic");
  refused("rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
          "partial_rotary_factor");
  refused("rope_scaling", {{"rope_type", "longrope"}, {"factor", 2.0}}, "longrope");
}

TEST(HfConfigTest, RefusesWrongValuesByName) {
  using enum absl::StatusCode;
  const auto wrong = [](const char* key, const Json& value, std::string_view text) {
    ExpectRefused(Changed(Llama(), key, value), kInvalidArgument, text);
  };
  wrong("hidden_size", nullptr, "hidden_size is missing");
  wrong("hidden_size", "2048", "hidden_size is \"2048\", must be an integer");
  wrong("hidden_size", 2048.5, "hidden_size is 2048.5, must be an integer");
  wrong("hidden_size", -1, "hidden_size is -1");
  wrong("num_hidden_layers", uint64_t{18446744073709551615u}, "18446744073709551615");
  wrong("vocab_size", int64_t{-9223372036854775807}, "vocab_size");
  wrong("num_key_value_heads", 5, "multiple");
  wrong("rms_norm_eps", "small", "rms_norm_eps");
  wrong("rope_theta", {1}, "rope_theta");
  wrong("rope_scaling", 3, "rope_scaling is 3, must be an object");
  wrong("rope_scaling", {{"type", "linear"}}, "factor is missing");
  wrong("tie_word_embeddings", 1, "tie_word_embeddings");
  for (const char* text : {"", "[]", "{", "null", "{\"a\":\"\xff\"}"}) {
    EXPECT_EQ(ParseHuggingFaceConfig(text).status().code(), kInvalidArgument) << text;
  }
  EXPECT_EQ(
      ParseHuggingFaceConfig(R"({"model_type":"llama","model_type":"llama"})").status().message(),
      "config.json: key \"model_type\" is there twice");
}

// Without head_dim the hidden size is divided among the heads; with it they need not fit.
TEST(HfConfigTest, SaysWhereTheHeadsDoNotDivideTheHiddenSize) {
  Json json = Llama();
  json.erase("head_dim");
  json["num_key_value_heads"] = json["num_attention_heads"] = 7;
  ExpectRefused(json, absl::StatusCode::kInvalidArgument,
                "config.json: hidden_size 2048 is not a multiple of num_attention_heads 7, and no "
                "head_dim is given");
  EXPECT_EQ(Read(Changed(json, "head_dim", 64)).head_dim, 64);
}

TEST(HfConfigTest, ReadsTokenIdsAsNumberOrList) {
  using kvcache::TokenId;
  EXPECT_EQ(*ParseTokenIds(R"({"eos_token_id":2})", "f.json", "eos_token_id"),
            std::vector{TokenId{2}});
  EXPECT_EQ(*ParseTokenIds(R"({"eos_token_id":[128001,128009]})", "f.json", "eos_token_id"),
            (std::vector{TokenId{128001}, TokenId{128009}}));
  EXPECT_TRUE(ParseTokenIds(R"({"eos_token_id":null})", "f.json", "eos_token_id")->empty());
  EXPECT_TRUE(ParseTokenIds("{}", "f.json", "eos_token_id")->empty());
  for (const char* text : {R"({"eos_token_id":-1})", R"({"eos_token_id":"2"})",
                           R"({"eos_token_id":[[2]]})", R"({"eos_token_id":99999999999})"}) {
    EXPECT_FALSE(ParseTokenIds(text, "f.json", "eos_token_id").ok()) << text;
  }
  Json many;
  many["eos_token_id"] = std::vector<int>(1025, 2);
  EXPECT_EQ(ParseTokenIds(many.dump(), "f.json", "eos_token_id").status().message(),
            "f.json: eos_token_id has 1025 token ids; at most 1024 are supported");
}

}  // namespace
}  // namespace refrain::engine
