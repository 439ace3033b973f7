#ifndef REFRAIN_SERVER_CONCAT_H_
#define REFRAIN_SERVER_CONCAT_H_

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

namespace refrain::server {

// Appends each part: text, integers, floating-point numbers in their shortest form. Exists because
// absl::StrCat does not take std::string_view where absl::string_view is a class of its own.
template <typename... Parts>
void ConcatTo(std::string* out, const Parts&... parts) {
  const auto append = [out](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_same_v<Part, char>) {
      out->push_back(part);
    } else if constexpr (std::is_arithmetic_v<Part>) {
      char buffer[40];
      out->append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), part).ptr);
    } else if constexpr (requires { part.data() + part.size(); }) {
      out->append(part.data(), part.size());
    } else {
      out->append(std::string_view(part));
    }
  };
  (append(parts), ...);
}

template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string out;
  ConcatTo(&out, parts...);
  return out;
}

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_CONCAT_H_
