#ifndef REFRAIN_SERVER_GUARDS_H_
#define REFRAIN_SERVER_GUARDS_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "server/access/key_gate.h"
#include "server/access/web_pages.h"
#include "server/config.h"
#include "server/http/cors.h"
#include "server/http/message.h"
#include "server/http/tls.h"
#include "server/log.h"
#include "server/request_log.h"

namespace refrain::server {

// What guards the ways in, made before anything listens.
struct Guards {
  std::unique_ptr<access::KeyGate> gate;
  std::unique_ptr<RequestLog> request_log;    // null = off
  std::shared_ptr<http::TlsCertificate> tls;  // null = off
  http::CorsPolicy cors;
  std::optional<access::WebPages> pages;  // none: keys are asked for
};

// `serves`: with the request log, whose file is made where there is none. Without it the chat
// template's file is looked at, too, which else the load does. INVALID_ARGUMENT and the like name
// the key or file that is wrong; RESOURCE_EXHAUSTED: the system has no more of something.
absl::StatusOr<Guards> MakeGuards(const Config& config, bool serves);

// Logs how many keys are in use, and each configured file that holds none.
void LogKeys(const Config& config, const access::KeyGate& gate, Log* log);

// The answer to an HTTP request that may not be asked, null for others:
// http::ServerOptions::filter. The first one that was refused as a web page's is logged, for
// whoever put a proxy in front. `guards` and `log` outlive it.
std::function<std::unique_ptr<http::Reply>(const http::Request& without_body)> HttpFilter(
    const Guards& guards, Log* log);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_GUARDS_H_
