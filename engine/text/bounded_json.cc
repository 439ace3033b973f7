#include "engine/text/bounded_json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/json_error_place.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;

// Of a block of memory, beside what was asked for.
constexpr size_t kBlockBytes = 16;
constexpr size_t kTreeNodeBytes = 32;

size_t StringMemory(const std::string& text) {
  const bool inside = text.size() < std::string().capacity();
  return sizeof(std::string) + (inside ? 0 : text.size() + kBlockBytes);
}

// Builds the tree from a parser's events, for as long as it is within the bounds.
class TreeBuilder {
 public:
  explicit TreeBuilder(const JsonBounds& bounds) : bounds_(bounds) {}

  bool null() { return Add(nullptr, 0); }
  bool boolean(bool value) { return Add(value, 0); }
  bool number_integer(Json::number_integer_t value) { return Add(value, 0); }
  bool number_unsigned(Json::number_unsigned_t value) { return Add(value, 0); }
  bool number_float(Json::number_float_t value, const std::string&) { return Add(value, 0); }
  bool string(std::string& value) {
    const size_t bytes = StringMemory(value) + kBlockBytes;
    return Add(std::move(value), bytes);
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return Open(Json::object(), sizeof(Json::object_t) + kBlockBytes); }
  bool start_array(size_t) { return Open(Json::array(), sizeof(Json::array_t) + kBlockBytes); }
  bool key(std::string& name) {
    if (!HasRoomFor(StringMemory(name) + kTreeNodeBytes + kBlockBytes)) return false;
    member_ = &(*open_.back())[std::move(name)];
    return true;
  }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

  Json TakeTree() { return std::move(tree_); }
  // What goes beyond the bounds; empty: nothing does.
  const std::string& excess() const { return excess_; }

 private:
  bool HasRoomFor(size_t bytes) {
    memory_bytes_ += bytes;
    if (memory_bytes_ <= bounds_.max_memory_bytes) return true;
    excess_ =
        absl::StrCat("its values would take over ", bounds_.max_memory_bytes, " bytes of memory");
    return false;
  }

  Json* Place(Json value) {
    if (open_.empty()) {
      tree_ = std::move(value);
      return &tree_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.get_ref<Json::array_t&>().emplace_back(std::move(value));
    *member_ = std::move(value);
    return member_;
  }

  bool Add(Json value, size_t more_bytes) {
    if (!HasRoomFor(sizeof(Json) + more_bytes)) return false;
    Place(std::move(value));
    return true;
  }

  // Pointers in open_ stay valid: only the innermost open container grows.
  bool Open(Json container, size_t more_bytes) {
    if (static_cast<int>(open_.size()) >= bounds_.max_depth) {
      excess_ = absl::StrCat("JSON nested deeper than ", bounds_.max_depth);
      return false;
    }
    if (!HasRoomFor(sizeof(Json) + more_bytes)) return false;
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonBounds bounds_;
  size_t memory_bytes_ = 0;
  Json tree_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // whose key came last
  std::string excess_;
};

}  // namespace

absl::StatusOr<Json> ParseBoundedJson(std::string_view file, std::string_view text,
                                      const JsonBounds& bounds) {
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(file), ": ", what));
  };
  TreeBuilder builder(bounds);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.excess().empty()) return refuse(builder.excess());
  if (!parsed) return refuse(absl::StrCat("is not valid JSON: ", JsonErrorPlace(text)));
  Json tree = builder.TakeTree();
  if (!tree.is_object()) return refuse("is not a JSON object");
  return tree;
}

}  // namespace refrain::engine
