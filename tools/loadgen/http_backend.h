#ifndef REFRAIN_TOOLS_LOADGEN_HTTP_BACKEND_H_
#define REFRAIN_TOOLS_LOADGEN_HTTP_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/loadgen/backend.h"
#include "tools/loadgen/event_loop.h"
#include "tools/loadgen/openai_wire.h"

namespace refrain::loadgen {

class TlsClient;

// Where a server listens: http://HOST:PORT or https://HOST:PORT, and perhaps a path before /v1.
struct HttpTarget {
  std::string host;
  std::string port;
  std::string path;  // empty, or begins with '/' and does not end with one
  bool https = false;
  std::shared_ptr<TlsClient> tls;  // with https, before anything is asked
};

// HOST:PORT as the Host field spells it: an IPv6 address in brackets.
inline std::string HostField(const HttpTarget& target) {
  const bool is_ipv6 = target.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + target.host + "]" : target.host) + ":" + target.port;
}

// INVALID_ARGUMENT when it is no such address. A trailing /v1 is dropped.
absl::StatusOr<HttpTarget> ParseTarget(std::string_view url);

struct HttpBackendOptions {
  HttpTarget target;
  WireOptions wire;
  std::string api_key;     // empty: none is sent
  double timeout_s = 300;  // from sending to the last byte
  double find_s = 10;      // for finding the address where the server listens
  // Sends a request again, once, on a new connection where a kept one was closed without a byte so
  // soon behind it that the server cannot have seen it. Else it has failed: connection_lost.
  bool resends = false;
};

// An OpenAI-compatible server over HTTP/1.1. Connections are kept alive and used again, as many as
// there are requests at a time; one that the server has closed meanwhile is replaced before a
// request goes out. Failures are told by OnEnd. UNAVAILABLE when the host has no address.
absl::StatusOr<std::unique_ptr<Backend>> MakeHttpBackend(AsioLoop* loop,
                                                         const HttpBackendOptions& options);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_HTTP_BACKEND_H_
