#include "engine/json_error_place.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;

// Takes a parser's events and keeps nothing but where it gave up.
class ErrorFinder {
 public:
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(Json::number_integer_t) { return true; }
  bool number_unsigned(Json::number_unsigned_t) { return true; }
  bool number_float(Json::number_float_t, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(Json::binary_t&) { return true; }
  bool start_object(size_t) { return true; }
  bool key(std::string&) { return true; }
  bool end_object() { return true; }
  bool start_array(size_t) { return true; }
  bool end_array() { return true; }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& error) {
    byte_ = byte;
    is_number_ = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;
    return false;
  }

  size_t byte() const { return byte_; }
  bool is_number() const { return is_number_; }

 private:
  size_t byte_ = 0;
  bool is_number_ = false;
};

}  // namespace

std::string JsonErrorPlace(std::string_view text) {
  ErrorFinder finder;
  Json::sax_parse(text.begin(), text.end(), &finder);
  if (finder.is_number()) {
    return absl::StrCat("the number that ends at byte ", finder.byte(), " of ", text.size(),
                        " is too large");
  }
  if (finder.byte() > text.size()) {
    return absl::StrCat("ends too early, after ", text.size(), " bytes");
  }
  return absl::StrCat("wrong at byte ", finder.byte(), " of ", text.size());
}

}  // namespace refrain::engine
