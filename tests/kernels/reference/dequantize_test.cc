#include "kernels/reference/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace refrain::kernels {
namespace {

std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// The expected bits of one block: from the raw little-endian hex where given, else from decimals
// that round-trip.
std::vector<uint32_t> ExpectedBits(const nlohmann::json& block, int elements) {
  std::vector<uint32_t> bits(elements);
  if (block.contains("f32_le_hex")) {
    const std::vector<std::byte> raw = FromHex(block["f32_le_hex"].get<std::string>());
    EXPECT_EQ(raw.size(), 4u * elements);
    std::memcpy(bits.data(), raw.data(), raw.size());
  } else {
    for (int i = 0; i < elements; ++i) {
      bits[i] = std::bit_cast<uint32_t>(static_cast<float>(block["values"][i].get<double>()));
    }
  }
  return bits;
}

int CheckFile(const std::string& path, std::map<std::string, int>& blocks_by_type) {
  int compared = 0;
  const nlohmann::json file = ReadJson(path);
  for (const nlohmann::json& type : file["types"]) {
    std::string name = type["type"];
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    const DTypeTraits* traits = nullptr;
    for (const DTypeTraits& t : kDTypes) {
      if (t.name == name) traits = &t;
    }
    EXPECT_NE(traits, nullptr) << name;
    if (traits == nullptr) continue;
    const int elements = type["elements"];
    for (const nlohmann::json& block : type["blocks"]) {
      const std::vector<std::byte> bytes = FromHex(block["hex"].get<std::string>());
      EXPECT_EQ(bytes.size(), RowBytes(traits->dtype, elements));
      const std::vector<uint32_t> expected = ExpectedBits(block, elements);
      std::vector<float> values(elements);
      DequantizeRow(traits->dtype, bytes.data(), elements, values.data());
      for (int i = 0; i < elements; ++i) {
        const float want = std::bit_cast<float>(expected[i]);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(values[i])) << name << " element " << i;
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), expected[i])
              << name << " element " << i << ": " << values[i] << " for " << want;
        }
        ++compared;
      }
      ++blocks_by_type[name];
    }
  }
  return compared;
}

// Every block that two independent implementations agree on comes out with the same bits here.
TEST(DequantizeTest, EqualsIndependentImplementationsBitForBit) {
  std::map<std::string, int> blocks;
  EXPECT_EQ(CheckFile("tests/data/quant_blocks/quant_blocks.json", blocks),
            7 * 4 * 32 + 2 * 4 * 256);
  EXPECT_EQ(CheckFile("tests/data/quant_blocks/q5_k_blocks.json", blocks), 4 * 256);
  for (const DTypeTraits& traits : kDTypes) {
    if (traits.dtype == DType::kF32) continue;
    EXPECT_EQ(blocks[std::string(traits.name)], 4) << traits.name;
  }
}

// All 65,536 halves against the sum that the format defines.
TEST(DequantizeTest, ConvertsEveryHalf) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 1023;
    const float got = F16ToF32(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      EXPECT_EQ(mantissa != 0, std::isnan(got)) << bits;
      EXPECT_EQ(mantissa == 0, std::isinf(got)) << bits;
    } else {
      const double want =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      EXPECT_EQ(got, sign * want) << bits;
    }
    EXPECT_EQ(std::signbit(got), sign < 0) << bits;
  }
}

// All 256 numbers of E4M3 likewise.
TEST(DequantizeTest, ConvertsEveryE4m3) {
  for (int bits = 0; bits < 256; ++bits) {
    const double sign = bits >= 128 ? -1 : 1;
    const int exponent = (bits >> 3) & 15;
    const int mantissa = bits & 7;
    const float got = E4m3ToF32(static_cast<uint8_t>(bits));
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      const double want =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      EXPECT_EQ(got, sign * want) << bits;
    }
    EXPECT_EQ(std::signbit(got), sign < 0) << bits;
  }
  EXPECT_EQ(E4m3ToF32(0x7e), 448);
  EXPECT_EQ(E4m3ToF32(0x38), 1);
}

// Rows of several blocks, from an address that no element type is aligned to.
TEST(DequantizeTest, ReadsRowsOfSeveralBlocksUnaligned) {
  for (const DTypeTraits& traits : kDTypes) {
    const int64_t elements = 3 * traits.block_elements;
    std::vector<std::byte> bytes(1 + 3 * traits.block_bytes);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((37 * i + 11) % 61);
    std::vector<float> row(elements);
    DequantizeRow(traits.dtype, bytes.data() + 1, elements, row.data());
    for (int b = 0; b < 3; ++b) {
      std::vector<std::byte> block(bytes.begin() + 1 + b * traits.block_bytes,
                                   bytes.begin() + 1 + (b + 1) * traits.block_bytes);
      std::vector<float> alone(traits.block_elements);
      DequantizeRow(traits.dtype, block.data(), traits.block_elements, alone.data());
      for (int i = 0; i < traits.block_elements; ++i) {
        EXPECT_EQ(row[b * traits.block_elements + i], alone[i]) << traits.name;
      }
    }
  }
}

}  // namespace
}  // namespace refrain::kernels
