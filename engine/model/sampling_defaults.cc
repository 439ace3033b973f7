#include "engine/model/sampling_defaults.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/model/strict_json.h"

namespace refrain::engine {

absl::Status SamplingDefaults::Validate() const {
  absl::Status status;
  const auto check = [&](const char* key, const std::optional<double>& value, double least,
                         double most) {
    if (!value.has_value() || (*value >= least && *value <= most)) return;  // false for NaN
    status.Update(absl::InvalidArgumentError(
        absl::StrCat(key, " is ", *value, ", must be ", least, " to ", most)));
  };
  check("temperature", temperature, 0, 2);
  check("top_p", top_p, 0, 1);
  check("min_p", min_p, 0, 1);
  check("repetition_penalty", repetition_penalty, 0.01, 100);
  check("top_k", top_k, -1, INT32_MAX);
  return status;
}

absl::StatusOr<SamplingDefaults> ParseGenerationConfig(std::string_view json) {
  constexpr char kFile[] = "generation_config.json";
  const absl::StatusOr<nlohmann::json> object = ParseJsonObject(json, kFile);
  if (!object.ok()) return object.status();
  absl::Status status;
  const auto number = [&](const char* key) -> std::optional<double> {
    const auto found = object->find(key);
    if (found == object->end() || found->is_null()) return std::nullopt;
    if (found->is_number()) return found->get<double>();
    status.Update(absl::InvalidArgumentError(
        absl::StrCat(kFile, ": ", key, " is ", ShownJson(*found), ", must be a number")));
    return std::nullopt;
  };
  SamplingDefaults defaults;
  defaults.temperature = number("temperature");
  defaults.top_p = number("top_p");
  defaults.min_p = number("min_p");
  defaults.repetition_penalty = number("repetition_penalty");
  if (const std::optional<double> top_k = number("top_k")) {
    if (*top_k != std::floor(*top_k) || std::abs(*top_k) > INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat(kFile, ": top_k is ", *top_k, ", must be an integer of 32 bits"));
    }
    defaults.top_k = static_cast<int32_t>(*top_k);
  }
  if (!status.ok()) return status;
  status = defaults.Validate();
  if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(kFile, ": ", status.message()));
  return defaults;
}

}  // namespace refrain::engine
