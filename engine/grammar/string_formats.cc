#include "engine/grammar/string_formats.h"

namespace refrain::engine {
namespace {

// Pieces of the expressions.
#define REFRAIN_HEX "[0-9A-Fa-f]"

// Those of every fourth year, but for centuries that are no multiple of 400.
#define REFRAIN_LEAP_YEAR "([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)"
#define REFRAIN_DAY_OF_ANY_YEAR                 \
  "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|" \
  "(0[469]|11)-(0[1-9]|[12][0-9]|30)|"          \
  "02-(0[1-9]|1[0-9]|2[0-8]))"
#define REFRAIN_DATE "([1-9][0-9]{3}-" REFRAIN_DAY_OF_ANY_YEAR "|" REFRAIN_LEAP_YEAR "-02-29)"
#define REFRAIN_CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]"
#define REFRAIN_TIME REFRAIN_CLOCK ":[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]" REFRAIN_CLOCK ")"

// RFC 3339, appendix A: of neighbouring units none is left out.
#define REFRAIN_COUNT "[0-9]{1,6}"
#define REFRAIN_SPAN(large, middle, small)                                 \
  "(" REFRAIN_COUNT large "(" REFRAIN_COUNT middle "(" REFRAIN_COUNT small \
  ")?)?|" REFRAIN_COUNT middle "(" REFRAIN_COUNT small ")?|" REFRAIN_COUNT small ")"
#define REFRAIN_DURATION \
  "P(" REFRAIN_SPAN("Y", "M", "D") "(T" REFRAIN_SPAN("H", "M", "S") ")?|"                \
  "T" REFRAIN_SPAN("H", "M", "S") "|" REFRAIN_COUNT "W)"

#define REFRAIN_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define REFRAIN_IPV4 REFRAIN_BYTE "(\\." REFRAIN_BYTE "){3}"

// Of whole bytes, of which the others are 0: Pydantic's IPv4Network wants no bits behind the
// prefix.
#define REFRAIN_IPV4_NETWORK                                                                     \
  "(" REFRAIN_BYTE "\\.0\\.0\\.0/8|" REFRAIN_BYTE "\\." REFRAIN_BYTE "\\.0\\.0/16|" REFRAIN_BYTE \
  "(\\." REFRAIN_BYTE "){2}\\.0/24|" REFRAIN_IPV4 "/32)"

#define REFRAIN_GROUP REFRAIN_HEX "{1,4}"
#define REFRAIN_IPV6                                                                    \
  "((" REFRAIN_GROUP ":){7}" REFRAIN_GROUP                                              \
  "|"                                                                                   \
  "(" REFRAIN_GROUP                                                                     \
  ":){1,7}:|"                                                                           \
  "(" REFRAIN_GROUP ":){1,6}:" REFRAIN_GROUP                                            \
  "|"                                                                                   \
  "(" REFRAIN_GROUP ":){1,5}(:" REFRAIN_GROUP                                           \
  "){2}|"                                                                               \
  "(" REFRAIN_GROUP ":){1,4}(:" REFRAIN_GROUP                                           \
  "){3}|"                                                                               \
  "(" REFRAIN_GROUP ":){1,3}(:" REFRAIN_GROUP                                           \
  "){4}|"                                                                               \
  "(" REFRAIN_GROUP ":){1,2}(:" REFRAIN_GROUP "){5}|" REFRAIN_GROUP ":(:" REFRAIN_GROUP \
  "){6}|"                                                                               \
  ":(:" REFRAIN_GROUP "){1,7}|::)"

// Six labels of 41 characters: 251 of the 253 that the name of a host may have.
#define REFRAIN_LABEL "[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20})?"
#define REFRAIN_HOST REFRAIN_LABEL "(\\." REFRAIN_LABEL "){0,5}"

// At most 62 characters before the @, of 64, and 251 in all, of 254.
#define REFRAIN_ATOM "[A-Za-z0-9_+-]{1,20}"
#define REFRAIN_EMAIL \
  REFRAIN_ATOM "(\\." REFRAIN_ATOM "){0,2}@(" REFRAIN_LABEL "\\.){1,4}[A-Za-z]{2,20}"

#define REFRAIN_PATH_CHARACTER "([A-Za-z0-9._~!$&'()*+,;=:@-]|%" REFRAIN_HEX "{2})"
#define REFRAIN_PATH "(/" REFRAIN_PATH_CHARACTER "*)*"
#define REFRAIN_QUERY "(" REFRAIN_PATH_CHARACTER "|[/?])*"
#define REFRAIN_URI                                                                            \
  "[A-Za-z][A-Za-z0-9+.-]{0,20}:"                                                              \
  "(//[A-Za-z0-9]+([.-][A-Za-z0-9]+)*(:[0-9]{1,5})?|" REFRAIN_PATH_CHARACTER "+)" REFRAIN_PATH \
  "(\\?" REFRAIN_QUERY ")?(#" REFRAIN_QUERY ")?"

#define REFRAIN_UUID \
  REFRAIN_HEX "{8}-" REFRAIN_HEX "{4}-" REFRAIN_HEX "{4}-" REFRAIN_HEX "{4}-" REFRAIN_HEX "{12}"

// RFC 9562, 4.1 and 4.2.
#define REFRAIN_UUID_OF(version)                                                       \
  REFRAIN_HEX "{8}-" REFRAIN_HEX "{4}-" version REFRAIN_HEX "{3}-[89ABab]" REFRAIN_HEX \
              "{3}-" REFRAIN_HEX "{12}"

// RFC 4648, section 4, with its padding.
#define REFRAIN_BASE64 "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{3}=|[A-Za-z0-9+/][AQgw]==)?"

#define REFRAIN_SHORT_LABEL "[A-Za-z0-9]+(-[A-Za-z0-9]+)*"
#define REFRAIN_SHORT_HOST REFRAIN_SHORT_LABEL "(\\." REFRAIN_SHORT_LABEL ")*"
#define REFRAIN_SHORT_EMAIL \
  "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@(" REFRAIN_SHORT_LABEL "\\.)+[A-Za-z]{2,}"

constexpr StringFormat kFormats[] = {
    {.name = "base64", .pattern = REFRAIN_BASE64, .shortest = 0},
    {.name = "date", .pattern = REFRAIN_DATE, .shortest = 10, .longest = 10},
    {.name = "date-time", .pattern = REFRAIN_DATE "T" REFRAIN_TIME, .shortest = 20, .longest = 32},
    {.name = "duration", .pattern = REFRAIN_DURATION, .shortest = 3, .longest = 44},
    {.name = "email",
     .pattern = REFRAIN_EMAIL,
     .shortest = 6,
     .longest = 251,
     .short_pattern = REFRAIN_SHORT_EMAIL},
    {.name = "hostname",
     .pattern = REFRAIN_HOST,
     .shortest = 1,
     .longest = 251,
     .short_pattern = REFRAIN_SHORT_HOST},
    {.name = "ipv4", .pattern = REFRAIN_IPV4, .shortest = 7, .longest = 15},
    {.name = "ipv6", .pattern = REFRAIN_IPV6, .shortest = 2, .longest = 39},
    {.name = "ipv4network", .pattern = REFRAIN_IPV4_NETWORK, .shortest = 9, .longest = 18},
    {.name = "ipvanyaddress",
     .pattern = "(" REFRAIN_IPV4 "|" REFRAIN_IPV6 ")",
     .shortest = 2,
     .longest = 39},
    {.name = "time", .pattern = REFRAIN_TIME, .shortest = 9, .longest = 21},
    {.name = "uri", .pattern = REFRAIN_URI, .shortest = 3},
    {.name = "uuid1", .pattern = REFRAIN_UUID_OF("1"), .shortest = 36, .longest = 36},
    {.name = "uuid3", .pattern = REFRAIN_UUID_OF("3"), .shortest = 36, .longest = 36},
    {.name = "uuid4", .pattern = REFRAIN_UUID_OF("4"), .shortest = 36, .longest = 36},
    {.name = "uuid5", .pattern = REFRAIN_UUID_OF("5"), .shortest = 36, .longest = 36},
    {.name = "uuid6", .pattern = REFRAIN_UUID_OF("6"), .shortest = 36, .longest = 36},
    {.name = "uuid7", .pattern = REFRAIN_UUID_OF("7"), .shortest = 36, .longest = 36},
    {.name = "uuid8", .pattern = REFRAIN_UUID_OF("8"), .shortest = 36, .longest = 36},
    {.name = "uuid", .pattern = REFRAIN_UUID, .shortest = 36, .longest = 36},
};

}  // namespace

const StringFormat* FindStringFormatOrNull(std::string_view name) {
  for (const StringFormat& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

}  // namespace refrain::engine
