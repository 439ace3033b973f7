// The % of strings: printf's conversions as Python has them.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/formatted_text.h"
#include "engine/text/jinja/numbers.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/string_functions.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/utf8.h"

namespace refrain::engine::jinja {
namespace {

[[noreturn]] void Fail(const std::string& problem) { throw TemplateError("format: " + problem); }

// Where the conversions of one format take their values from.
class Source {
 public:
  explicit Source(const Value& given) : given_(given) {
    if (given.is_tuple()) {
      items_ = &given.AsList();
    } else {
      one_ = &given;
    }
  }

  const Value& Next() {
    if (items_ != nullptr && next_ < items_->size()) return (*items_)[next_++];
    if (one_ != nullptr) return *std::exchange(one_, nullptr);
    Fail("there are too few arguments");
  }
  // The next one is what the mapping has of that name.
  void Name(std::string_view name) {
    if (!given_.is_map()) {
      Fail("%(" + std::string(name.substr(0, 100)) + ") needs a mapping, not " +
           std::string(TypeName(given_)));
    }
    one_ = given_.AsMap().FindOrNull(name);
    if (one_ == nullptr) Fail("there is no argument '" + std::string(name.substr(0, 100)) + "'");
  }
  // What has entries need not be used; to Python that are lists, too.
  bool AllUsed() const {
    if (items_ != nullptr) return next_ == items_->size();
    return one_ == nullptr || given_.is_map() || given_.is_list() || given_.is_undefined();
  }

 private:
  const Value& given_;
  const Value::List* items_ = nullptr;  // of a tuple
  size_t next_ = 0;
  const Value* one_ = nullptr;  // not taken yet
};

// %-05.2f
struct Conversion {
  bool left = false;       // -
  bool zeros = false;      // 0
  bool plus = false;       // +
  bool space = false;      // the same with a space
  bool alternate = false;  // #
  size_t width = 0;        // in characters
  std::optional<size_t> precision;
  char type = 0;
};

// Reads what stands behind a %, up to the type.
class ConversionReader {
 public:
  ConversionReader(std::string_view text, size_t at, Source* source)
      : text_(text), at_(at), source_(source) {}

  Conversion Read() {
    Conversion conversion;
    if (Peek() == '(') ReadName();
    while (ReadFlag(&conversion)) {
    }
    if (Peek() == '*') {
      const int64_t width = ReadStar();
      conversion.left = conversion.left || width < 0;
      conversion.width = static_cast<size_t>(std::abs(width));
    } else {
      conversion.width = ReadNumber();
    }
    if (Peek() == '.') {
      ++at_;
      conversion.precision =
          Peek() == '*' ? static_cast<size_t>(std::max<int64_t>(ReadStar(), 0)) : ReadNumber();
    }
    if (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++at_;  // C's, without meaning
    conversion.type = Peek();
    ++at_;
    return conversion;
  }
  size_t at() const { return at_; }  // behind the conversion

 private:
  char Peek() const {
    if (at_ >= text_.size()) Fail("it ends inside a conversion");
    return text_[at_];
  }

  void ReadName() {
    const size_t begin = ++at_;
    for (int open = 1; open > 0; ++at_) {
      if (at_ >= text_.size()) Fail("a name without its end");
      open += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
    }
    source_->Name(text_.substr(begin, at_ - 1 - begin));
  }

  bool ReadFlag(Conversion* conversion) {
    struct Flag {
      char spelling;
      bool Conversion::*member;
    };
    static constexpr Flag kFlags[] = {{'-', &Conversion::left},
                                      {'0', &Conversion::zeros},
                                      {'+', &Conversion::plus},
                                      {' ', &Conversion::space},
                                      {'#', &Conversion::alternate}};
    for (const Flag& flag : kFlags) {
      if (Peek() != flag.spelling) continue;
      conversion->*flag.member = true;
      ++at_;
      return true;
    }
    return false;
  }

  size_t ReadNumber() {
    size_t number = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      number = 10 * number + static_cast<size_t>(Peek() - '0');
      RequireSize(number);
    }
    return number;
  }

  int64_t ReadStar() {
    ++at_;
    const Value& value = source_->Next();
    const std::optional<int64_t> number = IntegerOrNull(value);
    if (!number.has_value()) Fail("* needs an integer, not " + std::string(TypeName(value)));
    const auto size = static_cast<uint64_t>(*number);
    RequireSize(*number < 0 ? 0 - size : size);
    return *number;
  }

  static void RequireSize(size_t size) {
    if (size > Budget::kMaxStringBytes) {
      Fail("a width or precision over " + std::to_string(Budget::kMaxStringBytes));
    }
  }

  const std::string_view text_;
  size_t at_;
  Source* const source_;
};

// A number in its parts, between which the filling stands.
struct NumberText {
  bool negative = false;
  std::string prefix;  // 0x
  std::string digits;
};

[[noreturn]] void FailType(char type, const Value& value) {
  if (value.is_undefined()) {
    throw TemplateError("'" + std::string(value.undefined_what()) + "' is undefined");
  }
  Fail(std::string("%") + type + " needs " +
       (type == 'x' || type == 'X' || type == 'o' ? "an integer" : "a number") + ", not " +
       std::string(TypeName(value)));
}

NumberText IntegerText(const Conversion& conversion, const Value& value) {
  const char type = conversion.type;
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : 10;
  NumberText text;
  uint64_t magnitude = value.big_int();
  if (magnitude == 0) {
    std::optional<int64_t> number = IntegerOrNull(value);
    if (!number.has_value() && value.is_float() && base == 10) {
      if (!std::isfinite(value.AsFloat())) Fail("a float that is no integer");
      number = TruncateFloat(value.AsFloat());
    }
    if (!number.has_value()) FailType(type, value);
    text.negative = *number < 0;
    magnitude = text.negative ? 0 - static_cast<uint64_t>(*number) : static_cast<uint64_t>(*number);
  }
  char buffer[72];
  text.digits.assign(buffer, std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base).ptr);
  const size_t least = conversion.precision.value_or(0);
  if (text.digits.size() < least) text.digits.insert(0, least - text.digits.size(), '0');
  if (conversion.alternate && base == 16) text.prefix = "0x";
  if (conversion.alternate && base == 8) text.prefix = "0o";
  if (type == 'X') {
    for (std::string* part : {&text.prefix, &text.digits}) {
      for (char& c : *part) c = static_cast<char>(c >= 'a' ? c - 'a' + 'A' : c);
    }
  }
  return text;
}

NumberText RealText(const Conversion& conversion, const Value& value) {
  if (!value.is_number()) FailType(conversion.type, value);
  const double number =
      value.is_float() ? value.AsFloat() : static_cast<double>(*IntegerOrNull(value));
  const char type = static_cast<char>(conversion.type | 0x20);  // in lower case
  NumberText text;
  text.negative = std::signbit(number) && !std::isnan(number);
  if (!std::isfinite(number)) {
    text.digits = std::isnan(number) ? "nan" : "inf";
  } else {
    const auto format = type == 'f'   ? std::chars_format::fixed
                        : type == 'e' ? std::chars_format::scientific
                                      : std::chars_format::general;
    const size_t precision = conversion.precision.value_or(6);
    constexpr size_t kMostDigits = 330;  // before the point, with all that is no digit
    text.digits.resize(kMostDigits + precision);
    const auto end = std::to_chars(text.digits.data(), text.digits.data() + text.digits.size(),
                                   std::fabs(number), format, static_cast<int>(precision));
    text.digits.resize(static_cast<size_t>(end.ptr - text.digits.data()));
    if (conversion.alternate) {
      if (type == 'g') Fail("# together with %g is not supported");
      if (precision == 0)
        text.digits.insert(std::min(text.digits.find('e'), text.digits.size()), ".");
    }
  }
  if (conversion.type != type) {
    for (char& c : text.digits) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return text;
}

std::string Filled(const Conversion& conversion, const NumberText& number) {
  std::string head;
  if (number.negative) {
    head = "-";
  } else if (conversion.plus || conversion.space) {
    head = conversion.plus ? "+" : " ";
  }
  head += number.prefix;
  const size_t size = head.size() + number.digits.size();
  const size_t filling = conversion.width - std::min(size, conversion.width);
  if (conversion.left) return head + number.digits + std::string(filling, ' ');
  if (conversion.zeros) return head + std::string(filling, '0') + number.digits;
  return std::string(filling, ' ') + head + number.digits;
}

// %c of a character or its number.
Text CharacterOf(const Value& value) {
  if (value.is_string() && CountCharacters(value.AsString()) == 1) return value.AsText();
  const std::optional<int64_t> number = IntegerOrNull(value);
  const bool is_character = number.has_value() && *number >= 0 && *number <= 0x10FFFF &&
                            !(*number >= 0xD800 && *number <= 0xDFFF);
  if (!is_character) Fail("%c needs a character or its number");
  std::string utf8;
  AppendUtf8(static_cast<uint32_t>(*number), &utf8);
  return Text(utf8);
}

// Its characters are counted, and with a precision their places kept, which is charged.
void AppendText(const Conversion& conversion, Text text, Budget* budget, FormattedText* out) {
  budget->Bytes((conversion.precision.has_value() ? 9 : 1) * text.size());
  size_t size = CountCharacters(text.bytes());
  if (conversion.type != 'c' && conversion.precision.has_value() && size > *conversion.precision) {
    size = *conversion.precision;
    text = text.Substr(0, CharacterOffsets(text.bytes())[size]);
  }
  const Text filling(std::string(conversion.width - std::min(size, conversion.width), ' '));
  if (!conversion.left) out->Append(filling);
  out->Append(text);
  if (conversion.left) out->Append(filling);
}

void Convert(const Conversion& conversion, const Value& value, bool is_html, Budget* budget,
             FormattedText* out) {
  budget->String(conversion.width + conversion.precision.value_or(0));
  switch (conversion.type) {
    case 's':
    case 'r': {
      const Text text = conversion.type == 's' ? ToText(value, budget) : Repr(value, budget);
      return AppendText(conversion, is_html ? EscapeHtml(text, budget) : text, budget, out);
    }
    case 'c':
      return AppendText(conversion, CharacterOf(value), budget, out);
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
      return out->Append(Text(Filled(conversion, IntegerText(conversion, value))));
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return out->Append(Text(Filled(conversion, RealText(conversion, value))));
    default:
      Fail(std::string("%") + conversion.type + " is not supported");
  }
}

}  // namespace

Text FormatPercent(const Text& format, const Value& arguments, Budget* budget) {
  const std::string_view text = format.bytes();
  budget->Bytes(4 * text.size());  // flags and names are read one character after the other
  FormattedText out(budget);
  Source source(arguments);
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.Append(format.Substr(at, percent - at));
    if (percent == text.size()) break;
    budget->Step();
    if (text.substr(percent + 1, 1) == "%") {
      out.Append(format.Substr(percent, 1));
      at = percent + 2;
      continue;
    }
    ConversionReader reader(text, percent + 1, &source);
    const Conversion conversion = reader.Read();
    at = reader.at();
    Convert(conversion, source.Next(), format.is_html(), budget, &out);
  }
  if (!source.AllUsed()) Fail("too many arguments");
  Text formatted = out.Take();
  formatted.set_is_html(format.is_html());
  return formatted;
}

}  // namespace refrain::engine::jinja
