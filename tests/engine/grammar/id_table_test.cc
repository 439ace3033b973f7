#include "engine/grammar/id_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace refrain::engine {
namespace {

// Thousands of ids, of which many have the same hash, and all have hashes that end alike.
TEST(IdTableTest, FindsEachIdAmongThoseOfItsHash) {
  const auto hash_of = [](uint32_t id) { return id % 100 << 20; };
  IdTable table;
  EXPECT_EQ(table.Find(0, [](uint32_t) { return true; }), std::nullopt);
  for (uint32_t id = 0; id < 3000; ++id) {
    const auto is_it = [id](uint32_t found) { return found == id; };
    EXPECT_EQ(table.Find(hash_of(id), is_it), std::nullopt);
    table.Insert(hash_of(id), id);
    EXPECT_EQ(table.Find(hash_of(id), is_it), id);
  }
  for (uint32_t id = 0; id < 3000; ++id) {
    EXPECT_EQ(table.Find(hash_of(id), [id](uint32_t found) { return found == id; }), id);
  }
  EXPECT_EQ(table.Find(100u << 20, [](uint32_t) { return true; }), std::nullopt);
  table.Clear();
  EXPECT_EQ(table.Find(0, [](uint32_t) { return true; }), std::nullopt);
}

}  // namespace
}  // namespace refrain::engine
