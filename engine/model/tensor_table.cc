#include "engine/model/tensor_table.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/quoted_name.h"

namespace refrain::engine {
namespace {

struct RoleName {
  TensorRole role;
  std::string_view gguf;  // empty: the format has no such tensor
  std::string_view hugging_face;
};

// Per-layer names follow "blk.N." and "model.layers.N.".
constexpr std::array<RoleName, kNumTensorRoles> kRoleNames = {{
    {TensorRole::kTokenEmbedding, "token_embd.weight", "model.embed_tokens.weight"},
    {TensorRole::kOutputNorm, "output_norm.weight", "model.norm.weight"},
    {TensorRole::kOutput, "output.weight", "lm_head.weight"},
    {TensorRole::kRopeFreqs, "rope_freqs.weight", ""},
    {TensorRole::kAttnNorm, "attn_norm.weight", "input_layernorm.weight"},
    {TensorRole::kAttnQ, "attn_q.weight", "self_attn.q_proj.weight"},
    {TensorRole::kAttnK, "attn_k.weight", "self_attn.k_proj.weight"},
    {TensorRole::kAttnV, "attn_v.weight", "self_attn.v_proj.weight"},
    {TensorRole::kAttnOutput, "attn_output.weight", "self_attn.o_proj.weight"},
    {TensorRole::kFfnNorm, "ffn_norm.weight", "post_attention_layernorm.weight"},
    {TensorRole::kFfnGate, "ffn_gate.weight", "mlp.gate_proj.weight"},
    {TensorRole::kFfnUp, "ffn_up.weight", "mlp.up_proj.weight"},
    {TensorRole::kFfnDown, "ffn_down.weight", "mlp.down_proj.weight"},
    {TensorRole::kAttnQBias, "attn_q.bias", "self_attn.q_proj.bias"},
    {TensorRole::kAttnKBias, "attn_k.bias", "self_attn.k_proj.bias"},
    {TensorRole::kAttnVBias, "attn_v.bias", "self_attn.v_proj.bias"},
    {TensorRole::kAttnQNorm, "attn_q_norm.weight", "self_attn.q_norm.weight"},
    {TensorRole::kAttnKNorm, "attn_k_norm.weight", "self_attn.k_norm.weight"},
}};

// Tables of angles that old converters stored; they follow from the configuration.
constexpr std::string_view kIgnoredName = "model.rotary_emb.inv_freq";
constexpr std::array<std::string_view, 2> kIgnoredLayerNames = {"attn_rot_embd.weight",
                                                                "self_attn.rotary_emb.inv_freq"};

std::string_view NameOf(const RoleName& entry, TensorNaming naming) {
  return naming == TensorNaming::kGguf ? entry.gguf : entry.hugging_face;
}

std::string_view LayerPrefix(TensorNaming naming) {
  return naming == TensorNaming::kGguf ? "blk." : "model.layers.";
}

struct RolePlace {
  TensorRole role;
  int layer;
};

struct LayerName {
  int layer;
  std::string_view rest;
};

// Splits "blk.12.attn_q.weight" into 12 and "attn_q.weight".
std::optional<LayerName> SplitLayerName(TensorNaming naming, std::string_view name) {
  const std::string_view prefix = LayerPrefix(naming);
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 6) return std::nullopt;
  const std::string_view digits = name.substr(0, dot);
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;  // "blk.00": two names, one layer
  int layer = 0;
  for (const char c : digits) {
    if (!absl::ascii_isdigit(c)) return std::nullopt;
    layer = 10 * layer + (c - '0');
  }
  return LayerName{layer, name.substr(dot + 1)};
}

std::optional<RolePlace> FindRole(TensorNaming naming, std::string_view name) {
  const std::optional<LayerName> in_layer = SplitLayerName(naming, name);
  for (const RoleName& entry : kRoleNames) {
    const std::string_view candidate = NameOf(entry, naming);
    if (candidate.empty() || IsPerLayer(entry.role) != in_layer.has_value()) continue;
    if (candidate == (in_layer ? in_layer->rest : name)) {
      return RolePlace{entry.role, in_layer ? in_layer->layer : 0};
    }
  }
  return std::nullopt;
}

bool IsIgnored(TensorNaming naming, std::string_view name) {
  if (naming == TensorNaming::kHuggingFace && name == kIgnoredName) return true;
  const std::optional<LayerName> in_layer = SplitLayerName(naming, name);
  return in_layer && std::find(kIgnoredLayerNames.begin(), kIgnoredLayerNames.end(),
                               in_layer->rest) != kIgnoredLayerNames.end();
}

absl::Status UnknownTensor(const ModelConfig& config, std::string_view name) {
  return absl::UnimplementedError(
      absl::StrCat("tensor ", QuotedName(name), " is not a part of architecture ",
                   QuotedName(config.architecture), " as this build runs it",
                   name.ends_with(".bias") ? " (such biases are not supported)" : ""));
}

bool RunsAs(TensorRole role, std::optional<kernels::DType> dtype) {
  if (!dtype.has_value()) return false;
  if (role == TensorRole::kRopeFreqs) return *dtype == kernels::DType::kF32;
  return !IsVector(role) || !kernels::Traits(*dtype).quantized;
}

absl::StatusOr<WeightView> CheckedView(const ModelConfig& config, TensorRole role,
                                       const SourceTensor& tensor) {
  const TensorShape expected = ShapeOf(role, config);
  const std::vector<int64_t> expected_dims =
      IsVector(role) ? std::vector<int64_t>{expected.cols}
                     : std::vector<int64_t>{expected.rows, expected.cols};
  if (tensor.shape != expected_dims) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", QuotedName(tensor.name), " has the shape [", absl::StrJoin(tensor.shape, ", "),
        "], the configuration asks for [", absl::StrJoin(expected_dims, ", "), "]"));
  }
  if (!RunsAs(role, tensor.dtype)) {
    return absl::UnimplementedError(absl::StrCat(
        "tensor ", QuotedName(tensor.name), " has the element type ", std::string(tensor.type_name),
        ", which is not supported for ", IsVector(role) ? "a vector" : "a matrix"));
  }
  return WeightView{*tensor.dtype, expected.rows, expected.cols, tensor.data.data(),
                    tensor.data.size()};
}

}  // namespace

std::string TensorName(TensorNaming naming, TensorRole role, int layer) {
  const std::string_view name = NameOf(kRoleNames[static_cast<size_t>(role)], naming);
  if (!IsPerLayer(role)) return std::string(name);
  return absl::StrCat(std::string(LayerPrefix(naming)), layer, ".", std::string(name));
}

TensorTable::TensorTable(int num_layers)
    : num_layers_(num_layers),
      views_(kNumGlobalRoles +
             static_cast<size_t>(num_layers) * (kNumTensorRoles - kNumGlobalRoles)) {}

std::optional<size_t> TensorTable::IndexOf(TensorRole role, int layer) const {
  const auto number = static_cast<size_t>(role);
  if (!IsPerLayer(role)) return number;
  if (layer < 0 || layer >= num_layers_) return std::nullopt;
  return kNumGlobalRoles + static_cast<size_t>(layer) * (kNumTensorRoles - kNumGlobalRoles) +
         (number - kNumGlobalRoles);
}

absl::StatusOr<TensorTable> TensorTable::Bind(const ModelConfig& config, TensorNaming naming,
                                              std::span<const SourceTensor> tensors) {
  TensorTable table(config.num_layers);
  const std::string embedding = TensorName(naming, TensorRole::kTokenEmbedding, 0);
  const bool has_embedding =
      std::any_of(tensors.begin(), tensors.end(),
                  [&](const SourceTensor& tensor) { return tensor.name == embedding; });
  for (const SourceTensor& tensor : tensors) {
    std::optional<RolePlace> place = FindRole(naming, tensor.name);
    if (!place) {
      if (IsIgnored(naming, tensor.name)) continue;
      return UnknownTensor(config, tensor.name);
    }
    // A tied embedding is stored under its own name, under the head's, or twice.
    if (place->role == TensorRole::kOutput && config.tied_embeddings) {
      if (has_embedding) continue;
      place->role = TensorRole::kTokenEmbedding;
    }
    if (!Belongs(place->role, config)) return UnknownTensor(config, tensor.name);
    const std::optional<size_t> index = table.IndexOf(place->role, place->layer);
    if (!index) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", QuotedName(tensor.name), " is for layer ", place->layer,
                       ", the model has ", config.num_layers, " layers"));
    }
    if (table.views_[*index].data != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", QuotedName(tensor.name), " is there twice"));
    }
    absl::StatusOr<WeightView> view = CheckedView(config, place->role, tensor);
    if (!view.ok()) return view.status();
    table.views_[*index] = *view;
  }
  for (const RoleName& entry : kRoleNames) {
    if (entry.role == TensorRole::kRopeFreqs || !Belongs(entry.role, config)) continue;
    for (int layer = 0; layer < (IsPerLayer(entry.role) ? config.num_layers : 1); ++layer) {
      if (table.Has(entry.role, layer)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", QuotedName(TensorName(naming, entry.role, layer)), " is missing"));
    }
  }
  return table;
}

bool TensorTable::Has(TensorRole role, int layer) const {
  const std::optional<size_t> index = IndexOf(role, layer);
  return index && views_[*index].data != nullptr;
}

absl::StatusOr<WeightView> TensorTable::Get(TensorRole role, int layer) const {
  const std::optional<size_t> index = IndexOf(role, layer);
  if (!index) {
    return absl::OutOfRangeError(
        absl::StrCat("layer ", layer, " of a model of ", num_layers_, " layers"));
  }
  if (views_[*index].data == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("the model has no tensor ", TensorName(TensorNaming::kGguf, role, layer)));
  }
  return views_[*index];
}

std::string TensorTable::DescribeTypes() const {
  std::array<int, kernels::kDTypes.size()> counts = {};
  for (const WeightView& view : views_) {
    if (view.data != nullptr) ++counts[static_cast<size_t>(view.dtype)];
  }
  std::vector<std::string> parts;
  for (const kernels::DTypeTraits& traits : kernels::kDTypes) {
    const int count = counts[static_cast<size_t>(traits.dtype)];
    if (count > 0) parts.push_back(absl::StrCat(count, " ", std::string(traits.name)));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace refrain::engine
