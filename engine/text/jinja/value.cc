#include "engine/text/jinja/value.h"

#include <algorithm>
#include <bit>

namespace refrain::engine::jinja {

Text::Text(std::string bytes, bool from_request) : bytes_(std::move(bytes)) {
  if (from_request) AddMark(0, bytes_.size());
}

void Text::AddMark(size_t begin_byte, size_t end_byte) {
  if (begin_byte == end_byte) return;
  if (!marks_.empty() && marks_.back().end_byte == begin_byte) {
    marks_.back().end_byte = end_byte;
  } else {
    marks_.push_back({begin_byte, end_byte});
  }
}

void Text::Append(const Text& other) {
  const size_t offset = bytes_.size();
  // By index and with the count taken first: `other` may be this text.
  const size_t count = other.marks_.size();
  for (size_t i = 0; i < count; ++i) {
    const Mark mark = other.marks_[i];
    AddMark(offset + mark.begin_byte, offset + mark.end_byte);
  }
  bytes_.append(other.bytes_);
}

void Text::Append(std::string_view bytes, bool from_request) {
  if (from_request) AddMark(bytes_.size(), bytes_.size() + bytes.size());
  bytes_.append(bytes);
}

Text Text::Substr(size_t begin_byte, size_t size_bytes) const {
  begin_byte = std::min(begin_byte, bytes_.size());
  const size_t end_byte = begin_byte + std::min(size_bytes, bytes_.size() - begin_byte);
  Text out;
  out.bytes_ = bytes_.substr(begin_byte, end_byte - begin_byte);
  auto mark = std::lower_bound(marks_.begin(), marks_.end(), begin_byte,
                               [](const Mark& m, size_t byte) { return m.end_byte <= byte; });
  for (; mark != marks_.end() && mark->begin_byte < end_byte; ++mark) {
    out.AddMark(std::max(mark->begin_byte, begin_byte) - begin_byte,
                std::min(mark->end_byte, end_byte) - begin_byte);
  }
  return out;
}

struct Value::ListRep {
  List items;
  bool is_tuple = false;
  int depth = 1;
  std::span<const std::string_view> names;
};

Value Value::Undefined(std::string what) {
  Value value;
  value.data_ = std::make_shared<const std::string>(std::move(what));
  return value;
}

Value Value::None() {
  Value value;
  value.data_ = NoneRep{};
  return value;
}

Value Value::Bool(bool boolean) {
  Value value;
  value.data_ = boolean;
  return value;
}

Value Value::Int(int64_t number) {
  Value value;
  value.data_ = number;
  return value;
}

Value Value::Float(double number) {
  Value value;
  value.data_ = Real{number, 0};
  return value;
}

Value Value::BigInt(uint64_t number) {
  Value value;
  value.data_ = Real{static_cast<double>(number), number};
  return value;
}

Value Value::String(std::string utf8) { return String(Text(std::move(utf8))); }

Value Value::String(Text text) {
  Value value;
  value.data_ = std::make_shared<const Text>(std::move(text));
  return value;
}

Value Value::MakeList(List items) {
  auto rep = std::make_shared<ListRep>();
  for (const Value& item : items) rep->depth = std::max(rep->depth, 1 + item.depth());
  rep->items = std::move(items);
  Value value;
  value.data_ = std::shared_ptr<const ListRep>(std::move(rep));
  return value;
}

Value Value::MakeTuple(List items) { return MakeNamedTuple(std::move(items), {}); }

Value Value::MakeNamedTuple(List items, std::span<const std::string_view> names) {
  auto rep = std::make_shared<ListRep>();
  for (const Value& item : items) rep->depth = std::max(rep->depth, 1 + item.depth());
  rep->items = std::move(items);
  rep->is_tuple = true;
  rep->names = names;
  Value value;
  value.data_ = std::shared_ptr<const ListRep>(std::move(rep));
  return value;
}

Value Value::MakeMap(Map map) {
  Value value;
  value.data_ = std::make_shared<const Map>(std::move(map));
  return value;
}

Value Value::MakeObject(std::shared_ptr<Object> object) {
  Value value;
  value.data_ = std::move(object);
  return value;
}

bool Value::is_tuple() const {
  return is_list() && std::get<std::shared_ptr<const ListRep>>(data_)->is_tuple;
}

const Value::List& Value::AsList() const {
  return std::get<std::shared_ptr<const ListRep>>(data_)->items;
}

const Value* Value::NamedItemOrNull(std::string_view name) const {
  const ListRep& rep = *std::get<std::shared_ptr<const ListRep>>(data_);
  for (size_t i = 0; i < rep.names.size(); ++i) {
    if (rep.names[i] == name) return &rep.items[i];
  }
  return nullptr;
}

std::string_view Value::undefined_what() const {
  const UndefinedRep& what = std::get<UndefinedRep>(data_);
  return what == nullptr ? std::string_view("value") : std::string_view(*what);
}

int Value::depth() const {
  if (is_list()) return std::get<std::shared_ptr<const ListRep>>(data_)->depth;
  if (is_map()) return AsMap().depth();
  if (is_object()) return AsObject()->depth();
  return 0;
}

Value Value::MarkedFromRequest() const {
  switch (kind()) {
    case Kind::kString:
      return String(Text(AsString(), /*from_request=*/true));
    case Kind::kList: {
      List items;
      items.reserve(AsList().size());
      for (const Value& item : AsList()) items.push_back(item.MarkedFromRequest());
      return is_tuple() ? MakeTuple(std::move(items)) : MakeList(std::move(items));
    }
    case Kind::kMap: {
      Map map;
      for (const Map::Entry& entry : AsMap().entries()) {
        map.Set(entry.key.MarkedFromRequest(), entry.value.MarkedFromRequest());
      }
      return MakeMap(std::move(map));
    }
    default:
      return *this;
  }
}

Map::KeyView Map::ViewOf(const Value& key) {
  const auto integer = [](int64_t number) {
    return KeyView{Value::Kind::kInt, {}, static_cast<uint64_t>(number)};
  };
  switch (key.kind()) {
    case Value::Kind::kString:
      return {key.kind(), key.AsString()};
    case Value::Kind::kBool:
      return integer(key.AsBool() ? 1 : 0);
    case Value::Kind::kInt:
      return integer(key.AsInt());
    case Value::Kind::kFloat: {
      const double number = key.AsFloat();
      if (number >= -9e15 && number <= 9e15 && number == static_cast<int64_t>(number)) {
        return integer(static_cast<int64_t>(number));
      }
      return {key.kind(), {}, std::bit_cast<uint64_t>(number)};
    }
    case Value::Kind::kNone:
    case Value::Kind::kUndefined:  // this and what follows: never a key, the interpreter refuses it
    case Value::Kind::kList:
    case Value::Kind::kMap:
    case Value::Kind::kObject:
      return {key.kind(), {}};
  }
  return {key.kind(), {}};
}

void Map::Set(Value key, Value value) {
  depth_ = std::max(depth_, 1 + value.depth());
  const size_t place = PlaceOf(ViewOf(key));
  if (place < entries_.size()) {
    entries_[place].value = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  if (entries_.size() <= kMostWithoutIndex) return;
  for (size_t i = index_.size(); i < entries_.size(); ++i) {
    index_.try_emplace(ViewOf(entries_[i].key), i);
  }
}

size_t Map::PlaceOf(const KeyView& key) const {
  if (!index_.empty()) {
    const auto it = index_.find(key);
    return it == index_.end() ? entries_.size() : it->second;
  }
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return ViewOf(entry.key) == key; });
  return static_cast<size_t>(it - entries_.begin());
}

const Value* Map::FindOrNull(std::string_view key) const {
  const size_t place = PlaceOf({Value::Kind::kString, key});
  return place == entries_.size() ? nullptr : &entries_[place].value;
}

const Value* Map::FindOrNull(const Value& key) const {
  const size_t place = PlaceOf(ViewOf(key));
  return place == entries_.size() ? nullptr : &entries_[place].value;
}

}  // namespace refrain::engine::jinja
