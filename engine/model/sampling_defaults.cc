#include "engine/model/sampling_defaults.h"

#include "absl/strings/str_cat.h"
#include "engine/model/strict_json.h"

namespace refrain::engine {

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
  SamplingDefaults defaults = {.temperature = number("temperature"),
                               .top_p = number("top_p"),
                               .min_p = number("min_p"),
                               .repetition_penalty = number("repetition_penalty"),
                               .presence_penalty = number("presence_penalty"),
                               .frequency_penalty = number("frequency_penalty"),
                               .top_k = number("top_k")};
  if (!status.ok()) return status;
  return defaults;
}

}  // namespace refrain::engine
