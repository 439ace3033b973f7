#ifndef REFRAIN_SERVER_ACCESS_WEB_PAGES_H_
#define REFRAIN_SERVER_ACCESS_WEB_PAGES_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/http/cors.h"
#include "server/http/message.h"

namespace refrain::server::access {

// Which web pages may use a server that asks for no key. A page that somebody opens anywhere can
// make their browser send requests to all that this browser reaches, the loopback address among it:
//
// - It may POST to another origin without asking first, if the body is called text/plain. It does
//   not see the answer, but the work is done. Browsers name the page in such a request's Origin,
//   which has to be the server's own (that of its Host header) or one that `cors` lists.
// - Its own name may lead to the loopback address ("DNS rebinding"). Then the browser takes the
//   server for the page's own and shows it the answers, and Origin and Host agree. But both have
//   the page's name: on a loopback address the Host has to be an IP address, localhost, *.localhost
//   or a name that was configured.
//
// Where keys are asked for, none of this is needed: no page has a key, and a browser asks before it
// sends the header with one. Requests of other clients have no Origin and a Host of the first kind.
// Immutable; any thread.
class WebPages {
 public:
  struct Options {
    http::CorsPolicy cors;      // http.cors_origins
    std::string listen_host;    // of server.http_listen
    std::string allowed_hosts;  // http.allowed_hosts: names with spaces or commas between, "*" all
  };
  // INVALID_ARGUMENT names the one that is no name.
  static absl::StatusOr<WebPages> Make(Options options);

  // PERMISSION_DENIED quotes the header and says what to configure. What is asked without a key
  // anywhere (/health and the like) is open to pages, too: it does nothing and tells nothing but
  // that a server is there, and probes come with all kinds of Host.
  absl::Status Check(const http::Request& request) const;

 private:
  explicit WebPages(Options options) : options_(std::move(options)) {}

  absl::Status CheckHost(std::string_view host) const;
  absl::Status CheckOrigin(std::string_view origin, std::string_view host) const;

  Options options_;
  bool checks_hosts_ = false;
  std::vector<std::string> hosts_;  // that are allowed beside addresses and localhost
};

// The answer to a request that Check refuses with `status`; its notes say why.
std::unique_ptr<http::Reply> RefuseWebPage(const absl::Status& status,
                                           const http::Request& request);

// Of an address to listen on, as it is written.
bool IsLoopback(std::string_view host);

}  // namespace refrain::server::access

#endif  // REFRAIN_SERVER_ACCESS_WEB_PAGES_H_
