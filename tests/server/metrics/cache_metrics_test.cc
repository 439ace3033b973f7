// What the metrics page tells of the KV cache, from the engine's counts.

#include <gtest/gtest.h>

#include <string>

#include "server/metrics/metrics.h"
#include "tests/server/metrics/series_value.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::metrics {
namespace {

using ::refrain::testing::FakeEngine;
using ::refrain::testing::SeriesValue;

class CacheMetricsTest : public ::testing::Test {
 protected:
  CacheMetricsTest() { metrics_.SetEngine(&engine_); }

  std::string Value(const std::string& series) const {
    return SeriesValue(metrics_.Page(), series);
  }

  FakeEngine engine_{{.max_context_tokens = 640}};  // tokens that the cache has room for, too
  Metrics metrics_{{.cache = {.prefix_cache = true, .dtype = "f16", .eviction = "lru"}}};
};

// Ten chunks of 64 tokens, of which four have 160 tokens of each of three sequences.
TEST_F(CacheMetricsTest, TellsWhereTheChunksAreAndWhatSharingSaves) {
  engine::EngineStats counts;
  counts.kv_chunk_bytes = 1000;
  counts.kv_used_chunks = 4;
  counts.kv_cached_chunks = 5;
  counts.kv_free_chunks = 1;
  counts.kv_logical_tokens = 480;
  engine_.SetCounts(counts);
  EXPECT_EQ(Value("refrain_kv_chunks{state=\"used\"}"), "4");
  EXPECT_EQ(Value("refrain_kv_chunks{state=\"cached\"}"), "5");
  EXPECT_EQ(Value("refrain_kv_chunks{state=\"free\"}"), "1");
  EXPECT_EQ(Value("refrain_kv_capacity_tokens"), "640");
  EXPECT_EQ(Value("refrain_kv_used_bytes"), "4000");
  EXPECT_EQ(Value("refrain_kv_logical_tokens"), "480");
  EXPECT_EQ(Value("refrain_kv_physical_tokens"), "256");
  EXPECT_EQ(Value("refrain_kv_sharing_factor"), "1.875");
  const std::string model = "{model_name=\"fake-model\",engine=\"0\"";
  EXPECT_EQ(Value("vllm:kv_cache_usage_perc" + model + "}"), "0.4");
  EXPECT_EQ(Value("vllm:cache_config_info" + model +
                  ",block_size=\"64\",num_gpu_blocks=\"10\",cache_dtype=\"f16\","
                  "enable_prefix_caching=\"True\",eviction=\"lru\"}"),
            "1");
}

TEST_F(CacheMetricsTest, CountsWhatWasEvictedCopiedAndHeld) {
  engine::EngineStats counts;
  counts.kv_evicted_chunks_total = 7;
  counts.kv_copied_chunks_total = 11;
  counts.held_sequences = 13;
  engine_.SetCounts(counts);
  EXPECT_EQ(Value("refrain_kv_evicted_chunks_total"), "7");
  EXPECT_EQ(Value("refrain_kv_copied_chunks_total"), "11");
  EXPECT_EQ(Value("refrain_held_sequences"), "13");
}

}  // namespace
}  // namespace refrain::server::metrics
