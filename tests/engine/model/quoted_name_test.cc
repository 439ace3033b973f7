#include "engine/model/quoted_name.h"

#include <gtest/gtest.h>

#include <string>

namespace refrain::engine {
namespace {

TEST(QuotedNameTest, EscapesWhatIsNotPrintable) {
  EXPECT_EQ(QuotedName("blk.0.attn_q.weight"), "\"blk.0.attn_q.weight\"");
  EXPECT_EQ(QuotedName("a\"b\\c\n\x1b[31m\xff"), R"("a\"b\\c\n\x1b[31m\xff")");
  EXPECT_EQ(QuotedName(std::string_view("a\0b", 3)), R"("a\x00\x62")");
  EXPECT_EQ(QuotedName(""), "\"\"");
}

// The bound is for bytes of the name; each takes at most four once it is escaped.
TEST(QuotedNameTest, CutsWhatIsTooLong) {
  EXPECT_EQ(QuotedName(std::string(96, 'x')), "\"" + std::string(96, 'x') + "\"");
  EXPECT_EQ(QuotedName(std::string(97, 'x')), "\"" + std::string(96, 'x') + "...\"");
  EXPECT_EQ(QuotedName(std::string(1 << 20, '\x01')).size(), 96 * 4 + 5);
  EXPECT_EQ(QuotedPath(std::string(4096, 'x')), "\"" + std::string(4096, 'x') + "\"");
  EXPECT_EQ(QuotedPath(std::string(4097, 'x')), "\"" + std::string(4096, 'x') + "...\"");
}

TEST(QuotedNameTest, WithPathKeepsTheCode) {
  const absl::Status status = WithPath(absl::DataLossError("breaks off"), "/m/a\nb.gguf");
  EXPECT_EQ(status, absl::DataLossError(R"("/m/a\nb.gguf": breaks off)"));
}

}  // namespace
}  // namespace refrain::engine
