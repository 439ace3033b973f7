// The daemon as it is, real engine included, over a model that costs nothing: what it takes is what
// serving takes. The "model" is an option string: "free" makes tokens as fast as they are taken in,
// "free:RATE" that many a second over all sequences.

#include <cstdlib>
#include <memory>
#include <string>

#include "server/daemon.h"
#include "tests/support/costless_engine.h"

int main(int argc, char** argv) {
  const auto make_engine = [](const refrain::engine::EngineOptions& options)
      -> absl::StatusOr<std::unique_ptr<refrain::engine::Engine>> {
    refrain::testing::CostlessModel model;
    const std::string& name = options.model.path;
    if (const size_t colon = name.find(':'); colon != std::string::npos) {
      model.tokens_per_s = std::atof(name.c_str() + colon + 1);
    }
    return refrain::testing::MakeCostlessEngine(model, options);
  };
  return static_cast<int>(
      refrain::server::RunDaemon({argv + 1, static_cast<size_t>(argc - 1)}, make_engine));
}
