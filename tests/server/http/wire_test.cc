#include "server/http/wire.h"

#include <gtest/gtest.h>

#include <string>

namespace refrain::server::http {
namespace {

TEST(PercentDecode, DecodesEscapesAndRefusesBrokenOnes) {
  std::string out;
  EXPECT_TRUE(PercentDecode("/a%2fb%20c", &out));
  EXPECT_EQ(out, "/a/b c");
  for (const char* bad : {"/%", "/%1", "/%zz", "/%00", "/a%2"}) {
    EXPECT_FALSE(PercentDecode(bad, &out)) << bad;
  }
}

TEST(RequestIds, AcceptsVisibleAsciiOfBoundedLength) {
  EXPECT_TRUE(IsAcceptableRequestId("a-b_c:1"));
  EXPECT_FALSE(IsAcceptableRequestId(""));
  EXPECT_FALSE(IsAcceptableRequestId("a b"));
  EXPECT_FALSE(IsAcceptableRequestId("a\nb"));
  EXPECT_FALSE(IsAcceptableRequestId("caf\xc3\xa9"));
  EXPECT_FALSE(IsAcceptableRequestId(std::string(129, 'x')));
  EXPECT_NE(MakeRequestId(), MakeRequestId());
  EXPECT_TRUE(IsAcceptableRequestId(MakeRequestId()));
}

TEST(ReplyFramer, SendsAnAnswerOfOnePartWithItsLength) {
  ReplyFramer framer({.request_id = "r"});
  const std::string bytes = framer.Frame({ResponseHead{}, "four", true});
  EXPECT_NE(bytes.find("Content-Length: 4\r\n"), std::string::npos);
  EXPECT_TRUE(bytes.ends_with("\r\n\r\nfour"));
  EXPECT_TRUE(framer.keep_alive());
}

TEST(ReplyFramer, SendsSeveralPartsChunked) {
  ReplyFramer framer({.request_id = "r"});
  EXPECT_EQ(framer.Frame({}), "");
  EXPECT_TRUE(framer.Frame({ResponseHead{}, "0123456789abcdef", false})
                  .ends_with("\r\n\r\n10\r\n0123456789abcdef\r\n"));
  EXPECT_EQ(framer.Frame({}), "");
  EXPECT_EQ(framer.Frame({std::nullopt, "x", true}), "1\r\nx\r\n0\r\n\r\n");
}

// What the head has promised is kept.
TEST(ReplyFramer, EndsTheConnectionWhereTheHeadSaysSo) {
  ReplyFramer ends({.request_id = "r"});
  EXPECT_NE(ends.Frame({ResponseHead{}, "a", false, /*close=*/true}).find("Connection: close\r\n"),
            std::string::npos);
  EXPECT_FALSE(ends.keep_alive());
  ReplyFramer kept({.request_id = "r"});
  EXPECT_NE(kept.Frame({ResponseHead{}, "a", false}).find("Connection: keep-alive\r\n"),
            std::string::npos);
  EXPECT_EQ(kept.Frame({std::nullopt, "", true, /*close=*/true}), "0\r\n\r\n");
  EXPECT_TRUE(kept.keep_alive());
}

}  // namespace
}  // namespace refrain::server::http
