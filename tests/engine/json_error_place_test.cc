#include "engine/json_error_place.h"

#include <gtest/gtest.h>

#include <string>

namespace refrain::engine {
namespace {

TEST(JsonErrorPlaceTest, CountsBytesFromOne) {
  EXPECT_EQ(JsonErrorPlace(R"({"a":1 2})"), "wrong at byte 8 of 9");
  EXPECT_EQ(JsonErrorPlace("{\"\xff\":1}"), "wrong at byte 3 of 7");
  EXPECT_EQ(JsonErrorPlace("{}}"), "wrong at byte 3 of 3");
}

TEST(JsonErrorPlaceTest, SaysThatATextEndsTooEarly) {
  EXPECT_EQ(JsonErrorPlace(""), "ends too early, after 0 bytes");
  EXPECT_EQ(JsonErrorPlace(R"({"a":)"), "ends too early, after 5 bytes");
}

// Which the library throws as no parse_error; such a file used to end the process.
TEST(JsonErrorPlaceTest, NumbersThatNoDoubleHolds) {
  EXPECT_EQ(JsonErrorPlace(R"({"a":1e999})"), "the number that ends at byte 10 of 11 is too large");
  EXPECT_EQ(JsonErrorPlace("-1e999"), "the number that ends at byte 6 of 6 is too large");
  EXPECT_EQ(JsonErrorPlace("[1, 1" + std::string(400, '0') + ".5]"),
            "the number that ends at byte 407 of 408 is too large");
}

TEST(JsonErrorPlaceTest, TakesAnyDepth) {
  EXPECT_EQ(JsonErrorPlace(std::string(1 << 20, '[')), "ends too early, after 1048576 bytes");
}

}  // namespace
}  // namespace refrain::engine
