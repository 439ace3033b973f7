#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "tests/support/stream_output.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain {
namespace {

long PeakResidentMiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

// A file may claim any context: nothing may be made ready for all of it.
TEST(LongContextClaim, CostsNeitherMemoryNorTimeAtTheStart) {
  const testing::TemporaryDirectory directory;
  testing::TinyModelOptions model;
  model.config.max_context_tokens = 1 << 24;
  const absl::StatusOr<std::string> path = testing::WriteTinyGguf(model, directory.path());
  ASSERT_TRUE(path.ok()) << path.status();
  const long before_mib = PeakResidentMiB();

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
  EXPECT_LT(PeakResidentMiB() - before_mib, 200);
}

}  // namespace
}  // namespace refrain
