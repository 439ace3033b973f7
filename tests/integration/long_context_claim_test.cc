#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "tests/support/slow_build.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain {
namespace {

struct Cost {
  long peak_resident_mib;
  double processor_s;
};

Cost CostUpToNow() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {usage.ru_maxrss >> 10, seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

// A file may claim any context: nothing may be made ready for all of it.
TEST(LongContextClaim, CostsNeitherMemoryNorTimeAtTheStart) {
  const testing::TemporaryDirectory directory;
  testing::TinyModelOptions model;
  model.config.max_context_tokens = 1 << 24;
  const absl::StatusOr<std::string> path = testing::WriteTinyGguf(model, directory.path());
  ASSERT_TRUE(path.ok()) << path.status();
  const Cost before = CostUpToNow();

  engine::EngineOptions options;
  options.model.path = *path;
  options.backend.threads = 1;
  const absl::StatusOr<std::unique_ptr<engine::Engine>> engine = engine::CreateEngine(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  engine::Request request;
  request.prompt = engine::TextPrompt{.text = "hello"};
  request.stop.max_tokens = 8;
  request.stop.ignore_eos = true;
  const auto stream = (*engine)->Submit(request);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const std::optional<testing::StreamOutput> output = testing::ReadToEnd(**stream);
  ASSERT_TRUE(output.has_value());
  EXPECT_EQ(output->tokens.size(), 8u);
  const Cost after = CostUpToNow();
  EXPECT_LT(after.peak_resident_mib - before.peak_resident_mib, 200);
  EXPECT_LT(after.processor_s - before.processor_s, 1.0 * testing::kSlowBuildFactor);
}

}  // namespace
}  // namespace refrain
