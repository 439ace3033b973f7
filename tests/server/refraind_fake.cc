// The daemon as it is, with an engine that repeats its prompt; for tests of the process itself.
// The "model" is an option string: "fake" is ready at once, "fail" cannot be loaded, "slow" takes
// half a second, "huge" more memory than it gets, "deep" a megabyte of its thread's stack, "stuck"
// takes a minute to end, "tools" has a chat template with tools in the style of Hermes, "fake:N"
// takes N microseconds for each token of a stream.

#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "server/daemon.h"
#include "tests/support/fake_engine.h"

namespace {

void WriteStack() {
  volatile char bytes[1 << 20];
  for (volatile char& byte : bytes) byte = 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto make_engine = [](const refrain::engine::EngineOptions& options)
      -> absl::StatusOr<std::unique_ptr<refrain::engine::Engine>> {
    if (options.model.path == "fail") return absl::NotFoundError("no such model: fail");
    if (options.model.path == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (options.model.path == "huge") throw std::bad_alloc();
    if (options.model.path == "deep") WriteStack();
    refrain::testing::FakeEngineOptions fake;
    if (options.model.path == "stuck") fake.end_delay = std::chrono::minutes(1);
    if (options.model.path == "tools") {
      fake.chat_template =
          "{% if tools %}{{ tools }}<tool_call>{% endif %}{{ messages[-1].content }}";
    }
    if (!options.model.served_name.empty()) fake.served_name = options.model.served_name;
    if (const size_t colon = options.model.path.find(':'); colon != std::string::npos) {
      fake.token_delay =
          std::chrono::microseconds(std::atoi(options.model.path.c_str() + colon + 1));
    }
    return std::make_unique<refrain::testing::FakeEngine>(fake);
  };
  return static_cast<int>(
      refrain::server::RunDaemon({argv + 1, static_cast<size_t>(argc - 1)}, make_engine));
}
