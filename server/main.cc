// refraind: the inference server.

#include "engine/engine.h"
#include "server/daemon.h"

int main(int argc, char** argv) {
  const auto status = refrain::server::RunDaemon(
      {argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)}, refrain::engine::CreateEngine);
  return static_cast<int>(status);
}
