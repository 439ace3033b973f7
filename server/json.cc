#include "server/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "server/concat.h"
#include "server/unbounded_numbers.h"

namespace refrain::server {
namespace {

// Up to this many members are compared in pairs; larger objects are sorted.
constexpr size_t kPairwiseMembers = 16;

// What a document may take: ids of tokens are the shortest values that come in large numbers.
constexpr size_t kFreeMemory = 16 << 20;
constexpr size_t kMemoryPerByte = 8;

size_t MostMemory(size_t text_bytes) { return kFreeMemory + kMemoryPerByte * text_bytes; }

// Of a block of memory, beside what was asked for.
constexpr size_t kBlockBytes = 16;

size_t StringMemory(const std::string& text) {
  const bool inside = text.size() < std::string().capacity();
  return inside ? 0 : text.size() + kBlockBytes;
}

// Of a value by itself, without its elements and members.
size_t OwnMemory(const Json& value) {
  if (const auto* text = value.get_ptr<const std::string*>()) {
    return sizeof(Json) + kBlockBytes + sizeof(std::string) + StringMemory(*text);
  }
  if (value.is_object()) return sizeof(Json) + kBlockBytes + sizeof(Json::object_t) + kBlockBytes;
  if (value.is_array()) return sizeof(Json) + kBlockBytes + sizeof(Json::array_t) + kBlockBytes;
  return sizeof(Json);
}

size_t KeyMemory(const std::string& key) { return sizeof(std::string) + StringMemory(key); }

// Builds the document from parser events. Members are appended without looking for their key;
// duplicates are looked for once, when the object is complete.
class DocumentBuilder {
 public:
  // `unbounded`: numbers whose value the text does not have, in order; null where a key may not
  // occur twice. Outlives this.
  DocumentBuilder(int max_depth, size_t max_memory,
                  const std::vector<UnboundedNumbers::One>* unbounded)
      : max_depth_(max_depth), max_memory_(max_memory), unbounded_(unbounded) {}

  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(Json::number_integer_t value) { return AddNumber(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return AddNumber(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return AddNumber(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) { return Fail("binary values are not JSON"); }

  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool key(std::string& name) {
    key_ = std::move(name);
    memory_ += KeyMemory(key_);
    return true;
  }
  bool end_object() {
    auto& object = open_.back()->get_ref<Json::object_t&>();
    if (const std::string* twice = DuplicateKeyOrNull(object)) {
      if (unbounded_ == nullptr) {
        return Fail(Concat("the key \"", *twice, "\" occurs twice in one object"));
      }
      KeepLastValues(&object);
    }
    open_.pop_back();
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const size_t end = what.find("] "); end != std::string_view::npos)
      what.remove_prefix(end + 2);
    return Fail(std::string(what));
  }

  Json TakeDocument() { return std::move(document_); }
  const std::string& error() const { return error_; }

 private:
  bool Fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  Json* Place(Json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& array = parent.get_ref<Json::array_t&>();
      return &array.emplace_back(std::move(value));
    }
    // The vector under the ordered map: appending is constant time.
    auto& members = static_cast<Json::object_t::Container&>(parent.get_ref<Json::object_t&>());
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  bool Add(Json value) {
    if (!HasRoomFor(value)) return false;
    Place(std::move(value));
    return true;
  }

  bool AddNumber(Json value) {
    if (unbounded_ != nullptr && next_unbounded_ < unbounded_->size() &&
        (*unbounded_)[next_unbounded_].index == numbers_) {
      value = (*unbounded_)[next_unbounded_++].value;
    }
    ++numbers_;
    return Add(std::move(value));
  }

  bool HasRoomFor(const Json& value) {
    memory_ += OwnMemory(value);
    return memory_ <= max_memory_ ||
           Fail(Concat("its values would take over ", max_memory_, " bytes of memory"));
  }

  // Pointers in open_ stay valid: only the innermost open container grows.
  bool Open(Json container) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Fail(Concat("nesting is deeper than ", max_depth_));
    }
    if (!HasRoomFor(container)) return false;
    open_.push_back(Place(std::move(container)));
    return true;
  }

  static const std::string* DuplicateKeyOrNull(const Json::object_t& object) {
    if (object.size() <= kPairwiseMembers) {
      for (auto a = object.begin(); a != object.end(); ++a) {
        for (auto b = object.begin(); b != a; ++b) {
          if (a->first == b->first) return &a->first;
        }
      }
      return nullptr;
    }
    std::vector<const std::string*> keys;
    keys.reserve(object.size());
    for (const auto& [name, value] : object) keys.push_back(&name);
    std::sort(keys.begin(), keys.end(), [](auto* a, auto* b) { return *a < *b; });
    const auto twice =
        std::adjacent_find(keys.begin(), keys.end(), [](auto* a, auto* b) { return *a == *b; });
    return twice == keys.end() ? nullptr : *twice;
  }

  // Each where its key stands first, as in Python's dictionaries. Sorted, for of a table somebody
  // could choose keys that all have one place.
  static void KeepLastValues(Json::object_t* object) {
    auto& members = static_cast<Json::object_t::Container&>(*object);
    std::vector<size_t> sorted(members.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](size_t a, size_t b) { return members[a].first < members[b].first; });
    std::vector<bool> again(members.size());  // its key stood before
    for (size_t i = 1, first = 0; i < sorted.size(); ++i) {
      again[sorted[i]] = members[sorted[i]].first == members[sorted[first]].first;
      if (again[sorted[i]]) {
        members[sorted[first]].second = std::move(members[sorted[i]].second);
      } else {
        first = i;
      }
    }
    Json::object_t::Container kept;
    for (size_t i = 0; i < members.size(); ++i) {
      if (!again[i]) kept.emplace_back(members[i].first, std::move(members[i].second));
    }
    members.swap(kept);
  }

  const int max_depth_;
  const size_t max_memory_;
  const std::vector<UnboundedNumbers::One>* const unbounded_;
  size_t next_unbounded_ = 0;
  size_t numbers_ = 0;  // so far
  size_t memory_ = 0;
  Json document_;
  std::vector<Json*> open_;
  std::string key_;
  std::string error_;
};

template <typename Float>
void AppendNumber(Float value, std::string* out) {
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out->append(buffer, result.ptr);
}

// The line ends of Unicode that are beyond ASCII. JSON may hold them as they are, but clients that
// cut a stream into lines as Python's `str.splitlines` does (httpx, requests) end one there.
struct LineEnd {
  size_t size_bytes = 0;  // 0: there is none
  std::string_view escape;
};

LineEnd FirstLineEnd(std::string_view utf8) {
  if (utf8.starts_with("\xC2\x85")) return {2, "\\u0085"};
  if (utf8.starts_with("\xE2\x80\xA8")) return {3, "\\u2028"};
  if (utf8.starts_with("\xE2\x80\xA9")) return {3, "\\u2029"};
  return {};
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  // The parser takes it for the end, and would not look at what is behind.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return absl::InvalidArgumentError(Concat("not valid JSON: a NUL at byte ", nul));
  }
  UnboundedNumbers unbounded;
  if (limits.as_python) {
    unbounded = TakeUnboundedNumbers(text);
    text = unbounded.text;
  }
  DocumentBuilder builder(limits.max_depth, MostMemory(text.size()),
                          limits.as_python ? &unbounded.ones : nullptr);
  const bool parsed =
      Json::sax_parse(text.begin(), text.end(), &builder, Json::input_format_t::json,
                      /*strict=*/true, limits.allow_comments);
  if (!parsed) return absl::InvalidArgumentError(Concat("not valid JSON: ", builder.error()));
  return builder.TakeDocument();
}

size_t MemoryOf(const Json& value) {
  size_t bytes = OwnMemory(value);
  if (value.is_array()) {
    for (const Json& element : value) bytes += MemoryOf(element);
  } else if (value.is_object()) {
    for (const auto& [name, member] : value.get_ref<const Json::object_t&>()) {
      bytes += KeyMemory(name) + MemoryOf(member);
    }
  }
  return bytes;
}

void JsonMemory::Add(size_t text_bytes, const Json& value) {
  text_bytes_ += text_bytes;
  bytes_ += MemoryOf(value);
}

size_t JsonMemory::most() const { return MostMemory(text_bytes_); }

void AppendJsonString(std::string_view utf8, std::string* out) {
  out->push_back('"');
  size_t clean_from = 0;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const unsigned char c = utf8[i];
    if (c == 0xC2 || c == 0xE2) {
      const LineEnd line_end = FirstLineEnd(utf8.substr(i));
      if (line_end.size_bytes == 0) continue;
      out->append(utf8.substr(clean_from, i - clean_from));
      out->append(line_end.escape);
      clean_from = i + line_end.size_bytes;
      i = clean_from - 1;
      continue;
    }
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
    out->append(utf8.substr(clean_from, i - clean_from));
    clean_from = i + 1;
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default: {
        constexpr char kHex[] = "0123456789abcdef";
        out->append("\\u00");
        out->push_back(kHex[c >> 4]);
        out->push_back(kHex[c & 15]);
      }
    }
  }
  out->append(utf8.substr(clean_from));
  out->push_back('"');
}

void AppendJsonNumber(double value, std::string* out) { AppendNumber(value, out); }
void AppendJsonNumber(float value, std::string* out) { AppendNumber(value, out); }

std::string_view JsonTypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return "not JSON";
}

std::optional<int64_t> IntegerValue(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::floor(number) && std::abs(number) < 9e15) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

std::string ShownValue(const Json& value) {
  if (value.is_structured()) return std::string(JsonTypeName(value));
  const auto* const text = value.get_ptr<const std::string*>();
  if (text == nullptr) return value.dump();
  constexpr size_t kMaxBytes = 64;
  size_t end = std::min(text->size(), kMaxBytes);
  // Not inside of a character: what follows its first byte is 10xxxxxx.
  while (end < text->size() && (static_cast<unsigned char>((*text)[end]) & 0xc0) == 0x80) --end;
  std::string shown;
  AppendJsonString(std::string_view(*text).substr(0, end), &shown);
  if (end < text->size()) ConcatTo(&shown, "... (", text->size(), " bytes)");
  return shown;
}

}  // namespace refrain::server
