#ifndef REFRAIN_TOOLS_LOADGEN_GRPC_BACKEND_H_
#define REFRAIN_TOOLS_LOADGEN_GRPC_BACKEND_H_

#include <memory>
#include <optional>
#include <string>

#include "tools/loadgen/backend.h"
#include "tools/loadgen/event_loop.h"

namespace refrain::loadgen {

struct GrpcTls {
  std::string authorities;  // certificates in PEM; empty: those of the system
  bool verify = true;       // that the server is who its name says
};

struct GrpcBackendOptions {
  std::string address;         // HOST:PORT
  std::optional<GrpcTls> tls;  // none: plain text
  // At a time, at most. Servers take a number of them (ours limits.grpc_calls_per_connection),
  // beyond which a client's library keeps them to itself: they would wait here, and count as the
  // server's time.
  int calls_per_connection = 100;
  std::string model;    // empty: the one that is served
  std::string api_key;  // empty: none is sent
  double temperature = 0;
  bool ignore_eos = true;
  double timeout_s = 300;  // the deadline of each call
};

// Refrain's own gRPC service, proto/inference.proto: Generate in every form of prompts. gRPC's
// threads hand what comes to the event loop; times are taken when they read it. Connections are as
// many as the calls at a time need. Whether there is a server shows with the first call.
std::unique_ptr<Backend> MakeGrpcBackend(EventLoop* loop, const GrpcBackendOptions& options);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_GRPC_BACKEND_H_
