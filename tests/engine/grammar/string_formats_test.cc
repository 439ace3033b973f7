// Formats of strings.

#include "engine/grammar/string_formats.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/engine/grammar/schema_grammar.h"

namespace refrain::engine {
namespace {

using refrain::testing::Accepts;
using refrain::testing::MakeSchemaGrammar;

absl::StatusOr<Grammar> WithFormat(const std::string& format, const std::string& more = "") {
  return MakeSchemaGrammar(R"({"type": "string", "format": ")" + format + "\"" + more + "}");
}

TEST(StringFormatsTest, FormatsAreHeld) {
  struct Case {
    const char* format;
    std::vector<const char*> allowed, not_allowed;
  };
  const Case cases[] = {
      {"date",
       {"2024-02-29", "2000-02-29", "1999-12-31", "2023-04-30"},
       {"2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-00-10", "2023-1-1",
        "23-01-01", "2023-01-01T", ""}},
      {"time",
       {"12:34:56Z", "00:00:00.5+05:30", "23:59:59-23:59"},
       {"12:34:56", "24:00:00Z", "12:60:00Z", "12:34Z", "12:34:56.Z", "12:34:56.1234567Z"}},
      {"date-time",
       {"2024-02-29T12:34:56Z", "2023-01-01T00:00:00.123+01:00"},
       {"2023-02-29T12:34:56Z", "2024-01-01 12:34:56Z", "2024-01-01", "2024-01-01T12:34:56"}},
      {"duration",
       {"P1D", "PT5M", "P1Y2M3DT4H5M6S", "P2W", "P1M", "P1DT12H"},
       {"P", "PT", "1D", "P1S", "P1Y2D", "P1W2D", "P1DT"}},
      {"email",
       {"a@example.com", "first.last+tag@mail.example.co.uk"},
       {"a", "a@", "@b.com", "a..b@c.com", ".a@b.com", "a@b", "a b@c.com", "a@-b.com"}},
      {"hostname", {"example.com", "a", "my-host.local"}, {"", "-a", "a-", "a..b", "a_b", "a.b."}},
      {"ipv4",
       {"0.0.0.0", "192.168.1.255"},
       {"256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.999"}},
      {"ipv6",
       {"::", "::1", "1::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "1::8",
        "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2::5:6:7:8"},
       {"1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", ":1",
        "1:", ":::", "1:2:3:4::5:6:7:8:9"}},
      {"uri",
       {"https://example.com", "http://localhost:8080/a/b%20c?q=1&r=/#top", "mailto:a@b.c",
        "urn:isbn:0451450523", "ftp://a.b/"},
       {"example.com", "/a/b", "http://a b", "http://", "http://a/%zz", "http://a/\\\\", "://a"}},
      {"ipvanyaddress", {"10.0.0.1", "::1"}, {"10.0.0", ":", "localhost"}},
      {"ipv4network",
       {"10.0.0.0/8", "192.168.0.0/16", "192.168.1.0/24", "192.168.1.7/32"},
       {"10.0.0.1/8", "192.168.1.0/16", "192.168.1.7/24", "10.0.0.0", "10.0.0.0/33"}},
      {"base64", {"", "YQ==", "YWI=", "YWJj", "+/+/"}, {"YQ", "YQ=", "YR==", "YWJ=a", "Y-J_"}},
      {"uuid4",
       {"123e4567-e89b-42d3-a456-426614174000"},
       {"123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-42d3-c456-426614174000"}},
      {"uuid7", {"01890a5d-ac96-774b-bcce-b302099a8057"}, {"01890a5d-ac96-474b-bcce-b302099a8057"}},
      {"uuid",
       {"123e4567-e89b-12d3-a456-426614174000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"},
       {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g",
        "123e4567-e89b-12d3-a456-4266141740000"}},
  };
  for (const Case& one : cases) {
    const StringFormat* format = FindStringFormatOrNull(one.format);
    ASSERT_NE(format, nullptr);
    const absl::StatusOr<Grammar> grammar = WithFormat(one.format);
    ASSERT_TRUE(grammar.ok()) << one.format << grammar.status();
    const auto quoted = [](const char* text) { return "\"" + std::string(text) + "\""; };
    for (const char* text : one.allowed) {
      EXPECT_TRUE(Accepts(*grammar, quoted(text))) << one.format << " " << text;
      const int length = static_cast<int>(std::string(text).size());
      EXPECT_GE(length, format->shortest) << text;
      EXPECT_LE(length, format->longest.value_or(length)) << text;
    }
    for (const char* text : one.not_allowed) {
      EXPECT_FALSE(Accepts(*grammar, quoted(text))) << one.format << " " << text;
    }
  }
}

TEST(StringFormatsTest, OtherFormatsSayNothing) {
  for (const char* format : {"password", "binary", "byte", "color", "regex", ""}) {
    EXPECT_EQ(FindStringFormatOrNull(format), nullptr);
    const absl::StatusOr<Grammar> grammar = WithFormat(format);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    EXPECT_TRUE(Accepts(*grammar, "\"anything\"")) << format;
  }
}

// A bound that no string of the format would break costs nothing.
TEST(StringFormatsTest, ShortestAndLongestAreTrue) {
  for (const char* name : {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6",
                           "time", "uri", "uuid"}) {
    const StringFormat& format = *FindStringFormatOrNull(name);
    const auto beyond = [&](const std::string& keyword, int length) {
      return WithFormat(name, ", \"" + keyword + "\": " + std::to_string(length));
    };
    const auto plain = WithFormat(name);
    ASSERT_TRUE(plain.ok()) << name;
    EXPECT_EQ(beyond("minLength", format.shortest)->num_states(), plain->num_states()) << name;
    EXPECT_FALSE(beyond("maxLength", format.shortest - 1).ok()) << name;
    EXPECT_TRUE(beyond("maxLength", format.shortest).ok()) << name;
    if (!format.longest) continue;
    EXPECT_EQ(beyond("maxLength", *format.longest)->num_states(), plain->num_states()) << name;
    EXPECT_FALSE(beyond("minLength", *format.longest + 1).ok()) << name;
    EXPECT_TRUE(beyond("minLength", *format.longest).ok()) << name;
  }
}

TEST(StringFormatsTest, LengthsHoldBesideFormats) {
  const auto email = WithFormat("email", R"(, "minLength": 8, "maxLength": 10)");
  ASSERT_TRUE(email.ok()) << email.status();
  EXPECT_TRUE(Accepts(*email, "\"a@bcd.com\""));
  EXPECT_FALSE(Accepts(*email, "\"a@b.com\""));
  EXPECT_FALSE(Accepts(*email, "\"ab@cdef.com\""));
  const auto common = WithFormat("email", R"(, "maxLength": 100)");
  ASSERT_TRUE(common.ok()) << common.status();
  EXPECT_TRUE(Accepts(*common, "\"first.last@example.com\""));
  EXPECT_LT(common->num_states(), 1500u);
  // As Pydantic's HttpUrl says it.
  const auto url = WithFormat("uri", R"(, "minLength": 1, "maxLength": 2083)");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_TRUE(Accepts(*url, "\"https://example.com/\""));
}

// zod writes both; a time of its own has no offset, which the format would want.
TEST(StringFormatsTest, BesideAPatternAFormatSaysNothing) {
  const auto time = WithFormat("time", R"(, "pattern": "^[0-9]{2}:[0-9]{2}$")");
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_TRUE(Accepts(*time, "\"12:34\""));
  EXPECT_FALSE(Accepts(*time, "\"12:34:56Z\""));
}

}  // namespace
}  // namespace refrain::engine
