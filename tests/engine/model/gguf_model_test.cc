#include "engine/model/gguf_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "engine/model/weight_source.h"
#include "engine/text/create_tokenizer.h"
#include "kernels/reference/dequantize.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using refrain::testing::BuildTinyGguf;
using refrain::testing::ExpectError;
using refrain::testing::GgufWriter;
using refrain::testing::TemporaryDirectory;
using refrain::testing::TinyModelOptions;
using refrain::testing::TinyWeight;

absl::StatusOr<std::unique_ptr<WeightSource>> OpenBytes(const std::string& bytes) {
  TemporaryDirectory directory;  // a mapping outlives its directory entry
  const std::string path = directory.path() + "/model.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return WeightSource::Open(path);
}

constexpr char kYarnAttention[] = "llama.rope.scaling.yarn_attn_factor";
constexpr char kAttention[] = "llama.rope.scaling.attn_factor";

// What `read` makes of a file of the keys and tensors that `add` adds.
template <typename T>
absl::StatusOr<T> ReadSmall(absl::StatusOr<T> (*read)(const GgufFile&),
                            const std::function<void(GgufWriter&)>& add) {
  GgufWriter writer;
  add(writer);
  const std::string bytes = writer.Build();
  const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  if (!file.ok()) return file.status();
  return read(*file);
}

void AddSmallShape(GgufWriter& writer) {
  writer.AddUint32("llama.block_count", 1);
  writer.AddUint32("llama.context_length", 128);
  writer.AddUint32("llama.embedding_length", 32);
  writer.AddUint32("llama.feed_forward_length", 32);
  writer.AddFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

TEST(GgufModelTest, ReadsHowTheModelWantsToBeSampled) {
  const auto read = [](const std::function<void(GgufWriter&)>& add) {
    return ReadSmall(&ReadGgufSamplingDefaults, add);
  };
  EXPECT_EQ(*read([](GgufWriter&) {}), SamplingDefaults());
  const auto defaults = read([](GgufWriter& w) {
    w.AddFloat32("general.sampling.temp", 0.6f);
    w.AddFloat32("general.sampling.top_p", 0.5f);
    w.AddFloat32("general.sampling.min_p", 0);
    w.AddUint32("general.sampling.top_k", 20);
    w.AddFloat32("general.sampling.penalty_repeat", 1.25f);
  });
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(
      *defaults,
      (SamplingDefaults{
          .temperature = 0.6, .top_p = 0.5, .min_p = 0, .repetition_penalty = 1.25, .top_k = 20}));
  ExpectError(read([](GgufWriter& w) { w.AddString("general.sampling.temp", "x"); }).status(),
              absl::StatusCode::kInvalidArgument, "general.sampling.temp");
}

// The configuration of a file of the fewest keys and those that `add` adds.
absl::StatusOr<ModelConfig> ConfigWith(const std::function<void(GgufWriter&)>& add) {
  return ReadSmall(ReadGgufConfig, [&](GgufWriter& writer) {
    writer.AddString("general.architecture", "llama");
    writer.AddUint32("llama.attention.head_count", 4);
    AddSmallShape(writer);
    add(writer);
    writer.AddTensor("token_embd.weight", 0, {32, 4}, std::string(512, 'x'));
  });
}

TEST(GgufModelTest, ReadsTheConfiguration) {
  TinyModelOptions options;
  options.config.head_dim = options.config.rope.dim = 32;  // not hidden / heads: a key of its own
  options.config.sliding_window_tokens = 100;
  options.config.rope.theta = 500000;
  const auto source = OpenBytes(BuildTinyGguf(options));
  ASSERT_TRUE(source.ok()) << source.status();
  const ModelConfig& config = (*source)->config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.ffn_size, 512);
  EXPECT_EQ(config.vocab_size, 384);
  EXPECT_EQ(config.max_context_tokens, 512);
  EXPECT_EQ(config.rms_eps, double{1e-5f});
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rope.dim, 32);
  EXPECT_EQ(config.rope.source_pairs, RopePairs::kAdjacent);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(config.sliding_window_tokens, 100);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE((*source)->Has(TensorRole::kOutput));
  EXPECT_NE((*source)->description().find("tiny"), std::string::npos);
}

TEST(GgufModelTest, ReadsRopeScaling) {
  TinyModelOptions options;
  options.config.rope.scaling = RopeScaling::kYarn;
  options.config.rope.factor = 4;
  options.config.rope.original_context_tokens = 128;
  options.config.rope.beta_fast = 16;
  options.config.rope.beta_slow = 2;
  options.config.rope.attention_factor = 1.25;
  auto source = OpenBytes(BuildTinyGguf(options));
  ASSERT_TRUE(source.ok()) << source.status();
  const RopeConfig& yarn = (*source)->config().rope;
  EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.factor, 4);
  EXPECT_EQ(yarn.original_context_tokens, 128);
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_EQ(yarn.beta_slow, 2);
  EXPECT_NEAR(yarn.attention_factor, 1.25, 1e-6);
  options.config.rope.scaling = RopeScaling::kLinear;
  source = OpenBytes(BuildTinyGguf(options));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->config().rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ((*source)->config().rope.factor, 4);
  options.rope_scaling_type = "";
  source = OpenBytes(BuildTinyGguf(options));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->config().rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ((*source)->config().rope.factor, 4);
  options.rope_scaling_type = "none";
  source = OpenBytes(BuildTinyGguf(options));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->config().rope.scaling, RopeScaling::kNone);
}

// `yarn_attn_factor` is config.json's attention_factor, the whole of it; `attn_factor` multiplies
// what follows from the factor. Other scalings have none.
TEST(GgufModelTest, ReadsBothAttentionFactorsOfYarn) {
  const auto read = [](const std::function<void(GgufWriter&)>& add) {
    return ConfigWith([&](GgufWriter& writer) {
      writer.AddFloat32("llama.rope.scaling.factor", 4);
      add(writer);
    });
  };
  const double by_factor = 0.1 * std::log(4.0) + 1;
  const auto yarn = [&](const std::function<void(GgufWriter&)>& add) {
    const auto config = read([&](GgufWriter& writer) {
      writer.AddString("llama.rope.scaling.type", "yarn");
      add(writer);
    });
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->rope.attention_factor : 0.0;
  };
  EXPECT_NEAR(yarn([](GgufWriter& w) {}), by_factor, 1e-6);
  EXPECT_NEAR(yarn([](GgufWriter& w) { w.AddFloat32(kYarnAttention, 1.25f); }), 1.25, 1e-6);
  // A converted attn_factor that would take it back.
  EXPECT_NEAR(yarn([](GgufWriter& w) { w.AddFloat32(kYarnAttention, 0.8782488562869419f); }),
              by_factor, 1e-6);
  EXPECT_NEAR(yarn([](GgufWriter& w) { w.AddFloat32(kYarnAttention, 0.88f); }), 0.88, 1e-6);
  EXPECT_NEAR(yarn([](GgufWriter& w) { w.AddFloat32(kAttention, 1.5f); }), 1.5 * by_factor, 1e-6);
  EXPECT_NEAR(yarn([](GgufWriter& w) {
                w.AddFloat32(kYarnAttention, 1.25f);
                w.AddFloat32(kAttention, 1.5f);
              }),
              1.5 * 1.25, 1e-6);
  const auto linear = [&](float attention) {
    return read([&](GgufWriter& w) { w.AddFloat32(kAttention, attention); }).status();
  };
  EXPECT_TRUE(linear(1).ok()) << linear(1);
  ExpectError(linear(1.5f), absl::StatusCode::kUnimplemented, "attn_factor is 1.5");
}

// YaRN reaches further than a file's context_length, where the original one is told.
TEST(GgufModelTest, YarnStretchesTheContext) {
  for (const bool told : {true, false}) {
    const auto config = ConfigWith([&](GgufWriter& writer) {
      writer.AddString("llama.rope.scaling.type", "yarn");
      writer.AddFloat32("llama.rope.scaling.factor", 4);
      if (told) writer.AddUint32("llama.rope.scaling.original_context_length", 128);
    });
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->max_context_tokens, told ? 512 : 128);
    EXPECT_EQ(config->stretched_context_tokens(), 512);
  }
}

// Files say "linear" where nothing is scaled: by a factor of 0, or none.
TEST(GgufModelTest, LinearScalingWithoutAFactorScalesNothing) {
  for (const bool has_factor : {false, true}) {
    const auto config = ConfigWith([&](GgufWriter& writer) {
      writer.AddString("llama.rope.scaling.type", "linear");
      if (has_factor) writer.AddFloat32("llama.rope.scaling.factor", 0);
    });
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rope.scaling, RopeScaling::kNone);
  }
  const auto old_key = ConfigWith([](GgufWriter& writer) {
    writer.AddString("llama.rope.scaling.type", "linear");
    writer.AddFloat32("llama.rope.scale_linear", 4);
  });
  ASSERT_TRUE(old_key.ok()) << old_key.status();
  EXPECT_EQ(old_key->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(old_key->rope.factor, 4);
}

TEST(GgufModelTest, OffersFrequencyFactors) {
  TinyModelOptions options;
  options.rope_freq_factors.assign(32, 1.0f);
  options.rope_freq_factors[31] = 8.0f;
  const auto source = OpenBytes(BuildTinyGguf(options));
  ASSERT_TRUE(source.ok()) << source.status();
  const auto view = (*source)->Get(TensorRole::kRopeFreqs);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->cols, 32);
  float last = 0;
  kernels::DequantizeRow(view->dtype, view->data + 31 * 4, 1, &last);
  EXPECT_EQ(last, 8.0f);
  options.rope_freq_factors[7] = 0.0f;
  ExpectError(OpenBytes(BuildTinyGguf(options)).status(), absl::StatusCode::kInvalidArgument,
              "rope_freqs.weight");
  options.rope_freq_factors.resize(16);
  ExpectError(OpenBytes(BuildTinyGguf(options)).status(), absl::StatusCode::kInvalidArgument,
              "[16]");
}

// Every weight of a model of every element type, read through the source, is the weight that was
// written: exactly for f32, rounded otherwise; q and k rows in adjacent pairs.
TEST(GgufModelTest, RoundTripsEveryElementType) {
  for (const kernels::DTypeTraits& traits : kernels::kDTypes) {
    TinyModelOptions options;
    options.matrix_dtype = traits.dtype;
    options.config.tied_embeddings = false;
    const auto source = OpenBytes(BuildTinyGguf(options));
    ASSERT_TRUE(source.ok()) << traits.name << ": " << source.status();
    const ModelConfig& config = (*source)->config();
    for (int number = 0; number < kNumTensorRoles; ++number) {
      const auto role = static_cast<TensorRole>(number);
      if (role == TensorRole::kRopeFreqs || !Belongs(role, config)) continue;
      const int layer = IsPerLayer(role) ? 1 : 0;
      const auto view = (*source)->Get(role, layer);
      ASSERT_TRUE(view.ok()) << view.status();
      EXPECT_EQ(view->dtype, IsVector(role) ? kernels::DType::kF32 : traits.dtype);
      const std::vector<float> expected = TinyWeight(options, role, layer);
      ASSERT_EQ(static_cast<size_t>(view->rows * view->cols), expected.size());
      std::vector<float> row(view->cols);
      double error = 0, size = 0;
      for (int64_t r = 0; r < view->rows; ++r) {
        kernels::DequantizeRow(view->dtype, view->data + r * (view->bytes / view->rows), view->cols,
                               row.data());
        int64_t from = r;
        if (role == TensorRole::kAttnQ || role == TensorRole::kAttnK) {
          const int64_t in_head = r % config.head_dim;
          from = r - in_head + in_head / 2 + (in_head % 2) * (config.head_dim / 2);
        }
        for (int64_t c = 0; c < view->cols; ++c) {
          const double want = expected[from * view->cols + c];
          error += (row[c] - want) * (row[c] - want);
          size += want * want;
        }
      }
      EXPECT_LE(error, traits.dtype == kernels::DType::kF32 ? 0.0 : 0.02 * size)
          << traits.name << " role " << number;
    }
  }
}

TEST(GgufModelTest, ReadsTheVocabulary) {
  const auto source = OpenBytes(BuildTinyGguf({}));
  ASSERT_TRUE(source.ok()) << source.status();
  const auto tokenizer = (*source)->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const TokenizerSpec& spec = tokenizer->spec;
  EXPECT_EQ(spec.kind, TokenizerKind::kBytePairEncoding);
  EXPECT_EQ(spec.pre_tokenizer, "gpt-2");
  ASSERT_EQ(spec.tokens.size(), 384u);
  EXPECT_EQ(spec.tokens[2], "<|im_end|>");
  EXPECT_EQ(spec.token_types[2], TokenType::kControl);
  EXPECT_EQ(spec.token_types[3], TokenType::kNormal);
  EXPECT_EQ(spec.merges.size(), 384u - 259u);
  EXPECT_EQ(spec.bos, kvcache::TokenId{0});
  EXPECT_EQ(spec.eos, kvcache::TokenId{2});
  EXPECT_EQ(spec.unk, std::nullopt);
  EXPECT_EQ(spec.add_bos, false);
  EXPECT_EQ(spec.add_eos, std::nullopt);
  EXPECT_NE(spec.chat_template.find("<|im_start|>"), std::string::npos);
  TinyModelOptions bare;
  bare.vocabulary = false;
  const auto without = OpenBytes(BuildTinyGguf(bare));
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ((*without)->ReadTokenizer().status().code(), absl::StatusCode::kNotFound);
}

// As converters write those of a config with a list of templates.
TEST(GgufModelTest, ReadsTemplatesOfFurtherNamesAndTheTokensTheySee) {
  const auto spec = ReadSmall(ReadGgufTokenizer, [](GgufWriter& writer) {
    writer.AddString("tokenizer.ggml.model", "gpt2");
    writer.AddStrings("tokenizer.ggml.tokens", {"a", "<pad>", "<mask>"});
    writer.AddStrings("tokenizer.ggml.merges", {});
    writer.AddUint32("tokenizer.ggml.padding_token_id", 1);
    writer.AddUint32("tokenizer.ggml.mask_token_id", 2);
    writer.AddUint32("tokenizer.ggml.seperator_token_id", 9);
    writer.AddString("tokenizer.chat_template", "D");
    writer.AddStrings("tokenizer.chat_templates", {"rag"});
    writer.AddString("tokenizer.chat_template.rag", "R");
    writer.AddString("tokenizer.chat_template.tool_use", "T");
  });
  ASSERT_TRUE(spec.ok()) << spec.status();
  using Texts = std::map<std::string, std::string>;
  EXPECT_EQ(spec->chat_template, "D");
  EXPECT_EQ(spec->named_chat_templates, (Texts{{"rag", "R"}, {"tool_use", "T"}}));
  EXPECT_EQ(spec->template_tokens, (Texts{{"pad_token", "<pad>"}, {"mask_token", "<mask>"}}));
}

// The first files of Llama do not say which pieces begin and end a text: they are Llama's own.
TEST(GgufModelTest, AssumesTheSpecialPiecesOfLlama) {
  const auto read = [](const char* model, const std::function<void(GgufWriter&)>& add) {
    const auto spec = ReadSmall(ReadGgufTokenizer, [&](GgufWriter& writer) {
      writer.AddString("tokenizer.ggml.model", model);
      writer.AddStrings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"});
      writer.AddStrings("tokenizer.ggml.merges", {});
      add(writer);
    });
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.value_or(TokenizerSpec());
  };
  const TokenizerSpec bare = read("llama", [](GgufWriter& w) {});
  EXPECT_EQ(bare.unk, kvcache::TokenId{0});
  EXPECT_EQ(bare.bos, kvcache::TokenId{1});
  EXPECT_EQ(bare.eos, kvcache::TokenId{2});
  EXPECT_EQ(bare.pad, std::nullopt);
  const TokenizerSpec told = read("llama", [](GgufWriter& w) {
    w.AddUint32("tokenizer.ggml.bos_token_id", UINT32_MAX);
    w.AddUint32("tokenizer.ggml.eos_token_id", 3);
  });
  EXPECT_EQ(told.bos, std::nullopt);
  EXPECT_EQ(told.eos, kvcache::TokenId{3});
  const TokenizerSpec bytes = read("gpt2", [](GgufWriter& w) {});
  EXPECT_EQ(bytes.bos, std::nullopt);
  EXPECT_EQ(bytes.eos, std::nullopt);
  EXPECT_EQ(bytes.unk, std::nullopt);
}

// Pieces merge by their scores, whatever merges a converter put beside them; bytes need merges.
TEST(GgufModelTest, ReadsTheMergesThatTheKindOfVocabularyHas) {
  const auto read = [](const char* model, bool has_scores, bool has_merges) {
    return ReadSmall(ReadGgufTokenizer, [&](GgufWriter& writer) {
      writer.AddString("tokenizer.ggml.model", model);
      writer.AddStrings("tokenizer.ggml.tokens", {"a", "b", "ab"});
      if (has_scores) writer.AddFloat32s("tokenizer.ggml.scores", {-1, -2, 0});
      if (has_merges) writer.AddStrings("tokenizer.ggml.merges", {"a b"});
    });
  };
  EXPECT_EQ(read("llama", true, true)->merges.size(), 0u);
  EXPECT_EQ(read("llama", false, true)->merges.size(), 1u);
  EXPECT_EQ(read("gpt2", true, true)->merges.size(), 1u);
  ExpectError(read("gpt2", false, false).status(), absl::StatusCode::kInvalidArgument,
              "tokenizer.ggml.merges is missing");
}

// Converters give added tokens that their source does not call special the type user-defined. One
// that ends a turn must stop, and must not come from a user's text.
TEST(GgufModelTest, TokensThatEndATurnAreControlTokens) {
  const auto spec = ReadSmall(ReadGgufTokenizer, [](GgufWriter& writer) {
    writer.AddString("tokenizer.ggml.model", "gpt2");
    writer.AddStrings("tokenizer.ggml.tokens",
                      {"a", "<|im_start|>", "<|im_end|>", "</s>", "<|eot_id|>"});
    writer.AddInt32s("tokenizer.ggml.token_type", {1, 4, 4, 1, 1});
    writer.AddStrings("tokenizer.ggml.merges", {});
  });
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->token_types,
            (std::vector<TokenType>{TokenType::kNormal, TokenType::kUserDefined,
                                    TokenType::kControl, TokenType::kNormal, TokenType::kControl}));
}

// Those of no well-known name by their ids alone. A single character stays text.
TEST(GgufModelTest, UserDefinedTokensThatEndATurnByTheirIdAreControlTokens) {
  const auto spec = ReadSmall(ReadGgufTokenizer, [](GgufWriter& writer) {
    writer.AddString("tokenizer.ggml.model", "gpt2");
    writer.AddStrings("tokenizer.ggml.tokens",
                      {"a", "[", "E", "O", "T", "]", "[EOT]", "[TOE]", "[TOO]", "!"});
    writer.AddInt32s("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 1, 4, 4, 4, 4});
    writer.AddStrings("tokenizer.ggml.merges", {});
    writer.AddUint32("tokenizer.ggml.eot_token_id", 6);
    writer.AddUint32("tokenizer.ggml.eom_token_id", 7);
    writer.AddUint32("tokenizer.ggml.eos_token_id", 9);
  });
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->token_types[6], TokenType::kControl);
  EXPECT_EQ(spec->token_types[7], TokenType::kControl);
  EXPECT_EQ(spec->token_types[8], TokenType::kUserDefined);
  EXPECT_EQ(spec->token_types[9], TokenType::kUserDefined);
  const auto tokenizer = CreateTokenizer(*spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "a[EOT]a[EOT]";
  const TextSpan content{6, text.size()};
  const EncodeOptions chat{.parse_special = true, .plain_spans = {&content, 1}};
  const auto found = (*tokenizer)->FindControlTokens(text, chat);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, kvcache::TokenId{6});
  const auto ids = (*tokenizer)->Encode(text, chat);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(std::count(ids->begin(), ids->end(), kvcache::TokenId{6}), 1);
}

// A GGUF with the keys of a model but of another architecture or option is refused by name.
TEST(GgufModelTest, RefusesWhatItDoesNotRun) {
  const auto parse = [](const std::function<void(GgufWriter&)>& add) {
    return ReadSmall(ReadGgufConfig,
                     [&](GgufWriter& writer) {
                       AddSmallShape(writer);
                       add(writer);
                       writer.AddTensor("token_embd.weight", 0, {32, 4}, std::string(512, 'x'));
                     })
        .status();
  };
  const auto expect = [&](absl::StatusCode code, std::string_view text,
                          const std::function<void(GgufWriter&)>& add) {
    ExpectError(ConfigWith(add).status(), code, text);
  };
  using enum absl::StatusCode;
  ExpectError(parse([](GgufWriter& w) { w.AddString("general.architecture", "gemma3"); }),
              kUnimplemented, "\"gemma3\"");
  ExpectError(parse([](GgufWriter& w) {}), kUnimplemented, "architecture \"\"");
  ExpectError(parse([](GgufWriter& w) { w.AddUint32("general.architecture", 1); }),
              kInvalidArgument, "general.architecture");
  ExpectError(parse([](GgufWriter& w) { w.AddString("general.architecture", "llama"); }),
              kInvalidArgument, "llama.attention.head_count\" is missing");
  expect(kOk, "", [](GgufWriter& w) {});
  expect(kUnimplemented, "expert_count",
         [](GgufWriter& w) { w.AddUint32("llama.expert_count", 8); });
  expect(kUnimplemented, "llama.attention.causal",
         [](GgufWriter& w) { w.AddBool("llama.attention.causal", false); });
  expect(kOk, "", [](GgufWriter& w) { w.AddBool("llama.attention.causal", true); });
  expect(kUnimplemented, "longrope", [](GgufWriter& w) {
    w.AddString("llama.rope.scaling.type", "longrope");
    w.AddFloat32("llama.rope.scaling.factor", 2);
  });
  expect(kInvalidArgument, "scaling.factor",
         [](GgufWriter& w) { w.AddString("llama.rope.scaling.type", "yarn"); });
  expect(kUnimplemented, "rotating 4 of 8",
         [](GgufWriter& w) { w.AddUint32("llama.rope.dimension_count", 4); });
  expect(kUnimplemented, "keys of 8 and values of 16",
         [](GgufWriter& w) { w.AddUint32("llama.attention.value_length", 16); });
  expect(kUnimplemented, "differs from layer to layer", [](GgufWriter& w) {
    w.AddInt32s("llama.attention.head_count_kv", {2, 1});
  });
  expect(kOk, "", [](GgufWriter& w) { w.AddInt32s("llama.attention.head_count_kv", {2, 2}); });
  expect(kInvalidArgument, "is 3000000000",
         [](GgufWriter& w) { w.AddUint32("llama.attention.head_count_kv", 3000000000); });
  expect(kInvalidArgument, "4 rows for 2 tokens", [](GgufWriter& w) {
    w.AddStrings("tokenizer.ggml.tokens", {"a", "b"});
  });
}

TEST(GgufModelTest, RefusesMissingMisshapenAndUnknownTensors) {
  const ModelConfig config = refrain::testing::TinyConfig();
  const std::string bytes = BuildTinyGguf({});
  const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto bind = [&](const std::function<void(std::vector<SourceTensor>&)>& change) {
    std::vector<SourceTensor> tensors = file->tensors();
    change(tensors);
    return TensorTable::Bind(config, TensorNaming::kGguf, tensors).status();
  };
  using enum absl::StatusCode;
  using Tensors = std::vector<SourceTensor>;
  EXPECT_TRUE(bind([](Tensors&) {}).ok());
  ExpectError(bind([](Tensors& t) { t.pop_back(); }), kInvalidArgument,
              "\"output_norm.weight\" is missing");
  ExpectError(bind([](Tensors& t) { t[1].name = "blk.0.attn_norm.weights"; }), kUnimplemented,
              "blk.0.attn_norm.weights");
  ExpectError(bind([](Tensors& t) { t[1].name = "blk.0.attn_q.bias"; }), kUnimplemented, "biases");
  ExpectError(bind([](Tensors& t) { t[1].name = "blk.2.attn_norm.weight"; }), kInvalidArgument,
              "2 layers");
  ExpectError(bind([](Tensors& t) { t[1].name = "blk.00.attn_norm.weight"; }), kUnimplemented,
              "blk.00");
  ExpectError(bind([](Tensors& t) { t.push_back(t[1]); }), kInvalidArgument, "twice");
  ExpectError(bind([](Tensors& t) { t[2].shape = {256, 255}; }), kInvalidArgument, "[256, 255]");
  ExpectError(bind([](Tensors& t) { t[2].shape = {65536}; }), kInvalidArgument, "[65536]");
  ExpectError(bind([](Tensors& t) {
                t[2].dtype = std::nullopt;
                t[2].type_name = "Q2_K";
              }),
              kUnimplemented, "Q2_K");
  ExpectError(bind([](Tensors& t) { t[1].dtype = kernels::DType::kQ8_0; }), kUnimplemented,
              "vector");
  EXPECT_TRUE(bind([](Tensors& t) {
                t.push_back({});
                t.back().name = "blk.0.attn_rot_embd.weight";
              }).ok());
}

}  // namespace
}  // namespace refrain::engine
