#ifndef REFRAIN_ENGINE_TEXT_JINJA_VALUE_H_
#define REFRAIN_ENGINE_TEXT_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/hash_map.h"

namespace refrain::engine::jinja {

// A UTF-8 string that remembers which of its bytes came from a request. Cutting and joining keep
// the marks byte for byte. It may be HTML, as Python's Markup is, which `safe` and `escape` give:
// what operators then add to it is escaped. Copies stay HTML; no other function here makes any.
class Text {
 public:
  struct Mark {
    size_t begin_byte;
    size_t end_byte;
  };

  Text() = default;
  explicit Text(std::string bytes, bool from_request = false);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  const std::vector<Mark>& marks() const { return marks_; }  // sorted, disjoint, not adjacent
  bool HasMarks() const { return !marks_.empty(); }
  bool is_html() const { return is_html_; }
  void set_is_html(bool is_html) { is_html_ = is_html; }

  void Append(const Text& other);
  void Append(std::string_view bytes, bool from_request = false);
  Text Substr(size_t begin_byte, size_t size_bytes) const;

 private:
  void AddMark(size_t begin_byte, size_t end_byte);

  std::string bytes_;
  std::vector<Mark> marks_;
  bool is_html_ = false;
};

class Map;
class Object;  // callables and namespaces: the interpreter's own

// A value of the template language: what Python's jinja2 would hold, cut down to what JSON can say
// plus what templates make of it.
//
// Built by the server from a request's JSON, by tests, and by the interpreter. Copies are cheap and
// share their content, which never changes after construction, so values may be read by several
// threads. Destroying recurses: whoever builds values from input limits their nesting (JSON parsers
// do; `depth()` tells). Accessors require the right kind.
class Value {
 public:
  using List = std::vector<Value>;
  enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kList, kMap, kObject };

  Value() = default;  // undefined
  // `what` is named when the value is used: "'x' is undefined".
  static Value Undefined(std::string what);
  static Value None();
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  // An integer from 2^63 on, which JSON may hold: a float but for its digits, which are shown.
  static Value BigInt(uint64_t value);
  static Value String(std::string utf8);
  static Value String(Text text);
  static Value MakeList(List items);
  static Value MakeTuple(List items);
  // Python's namedtuple: a tuple whose first items have `names`, too, which live for ever.
  static Value MakeNamedTuple(List items, std::span<const std::string_view> names);
  static Value MakeMap(Map map);
  static Value MakeObject(std::shared_ptr<Object> object);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_list() const { return kind() == Kind::kList; }  // tuples too
  bool is_tuple() const;
  bool is_map() const { return kind() == Kind::kMap; }
  bool is_object() const { return kind() == Kind::kObject; }

  bool AsBool() const { return std::get<bool>(data_); }
  int64_t AsInt() const { return std::get<int64_t>(data_); }
  double AsFloat() const { return std::get<Real>(data_).value; }
  // Of a float that BigInt made, else 0.
  uint64_t big_int() const { return is_float() ? std::get<Real>(data_).digits : 0; }
  const Text& AsText() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const std::string& AsString() const { return AsText().bytes(); }
  const List& AsList() const;
  // The item of a list that has this name (of a named tuple).
  const Value* NamedItemOrNull(std::string_view name) const;
  const Map& AsMap() const { return *std::get<std::shared_ptr<const Map>>(data_); }
  Object* AsObject() const { return std::get<std::shared_ptr<Object>>(data_).get(); }
  std::string_view undefined_what() const;

  // 0 for scalars, 1 + the deepest element for lists and maps.
  int depth() const;

  // A copy in which every string, map keys too, is marked as coming from a request.
  Value MarkedFromRequest() const;

 private:
  struct ListRep;
  using UndefinedRep = std::shared_ptr<const std::string>;
  struct NoneRep {};
  struct Real {
    double value = 0;
    uint64_t digits = 0;
  };
  std::variant<UndefinedRep, NoneRep, bool, int64_t, Real, std::shared_ptr<const Text>,
               std::shared_ptr<const ListRep>, std::shared_ptr<const Map>, std::shared_ptr<Object>>
      data_;
};

// Keeps the order of insertion, which tojson and items() show. Keys are strings, or what a template
// writes in a dict literal (numbers, booleans, none). Setting a key again keeps its place.
class Map {
 public:
  struct Entry {
    Value key;
    Value value;
  };

  void Set(Value key, Value value);
  void Set(std::string key, Value value) { Set(Value::String(std::move(key)), std::move(value)); }
  const Value* FindOrNull(std::string_view key) const;
  const Value* FindOrNull(const Value& key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

 private:
  // What keys that Python holds equal (1, 1.0, True) have in common. Owns no text: a key may be
  // long, and be in many maps.
  struct KeyView {
    Value::Kind kind;
    std::string_view text;  // of a string
    uint64_t number = 0;    // an integer, or a float's bits

    friend bool operator==(const KeyView&, const KeyView&) = default;
    template <typename Hash>
    friend Hash AbslHashValue(Hash hash, const KeyView& key) {
      // By its bytes: where absl::string_view is a type of its own, std's is hashed without a seed.
      hash = Hash::combine_contiguous(std::move(hash), key.text.data(), key.text.size());
      return Hash::combine(std::move(hash), key.text.size(), key.kind, key.number);
    }
  };
  static KeyView ViewOf(const Value& key);

  // Of more entries than that there is an index: a conversation may have many small maps, each of
  // which would take an index of fifteen at least.
  static constexpr size_t kMostWithoutIndex = 8;

  // Of the entry, size() where there is none.
  size_t PlaceOf(const KeyView& key) const;

  std::vector<Entry> entries_;
  // Empty, or of all. Looks at the texts of the entries, which copies of the map share. Keys come
  // from requests: a hash without a seed would let somebody choose many that collide.
  HashMap<KeyView, size_t> index_;
  int depth_ = 1;
};

// Base of what only the interpreter knows: macros, functions, namespaces, bound methods.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual int depth() const { return 0; }  // of the values it holds; see Value::depth
};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_VALUE_H_
