#include "engine/sip_hash.h"

#include <gtest/gtest.h>

#include <string>

namespace refrain::engine {
namespace {

// The authors' vectors: key 00 01 .. 0f, texts 00 01 .. of each size.
TEST(SipHashTest, AgreesWithThePublishedVectors) {
  constexpr SipKey kKey = {.low = 0x0706050403020100, .high = 0x0f0e0d0c0b0a0908};
  const std::pair<size_t, uint64_t> vectors[] = {
      {0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {7, 0xab0200f58b01d137},
      {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb},
  };
  for (const auto& [size_bytes, hash] : vectors) {
    std::string text;
    for (size_t i = 0; i < size_bytes; ++i) text.push_back(static_cast<char>(i));
    EXPECT_EQ(SipHash(kKey, text), hash) << size_bytes;
  }
}

TEST(SipHashTest, DependsOnBothHalvesOfTheKey) {
  EXPECT_NE(SipHash({1, 2}, "text"), SipHash({1, 3}, "text"));
  EXPECT_NE(SipHash({1, 2}, "text"), SipHash({2, 2}, "text"));
}

}  // namespace
}  // namespace refrain::engine
