#ifndef REFRAIN_ENGINE_TEXT_JSON_MEMBERS_H_
#define REFRAIN_ENGINE_TEXT_JSON_MEMBERS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace refrain::engine {

// Readers of the files of a tokenizer that never throw: a member that is absent, null or of another
// type reads as the fallback, as does any of a value that is no object. Any thread.
const nlohmann::json* FindOrNull(const nlohmann::json& object, const char* key);
std::string StringOf(const nlohmann::json& object, const char* key);  // "" as the fallback
bool BoolOf(const nlohmann::json& object, const char* key, bool fallback);
// None for what is no integer.
std::optional<int64_t> IntOf(const nlohmann::json& value);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_JSON_MEMBERS_H_
