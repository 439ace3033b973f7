#ifndef REFRAIN_SERVER_HTTP_LISTENING_H_
#define REFRAIN_SERVER_HTTP_LISTENING_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace refrain::server::http {

// Sockets that listen on `port` of `host`, which is an address or a name; of a name on every
// address that it has, as clients try them in an order of their own ("localhost" is often two). One
// at least, and all on one port, also where 0 asks for any free one.
absl::StatusOr<std::vector<boost::asio::ip::tcp::acceptor>> Listen(boost::asio::io_context* context,
                                                                   const std::string& host,
                                                                   uint16_t port);

// The same of `addresses`, one at least. Those that this machine does not have (no IPv6, say) are
// left out as long as another is there; one whose port is taken is an error.
absl::StatusOr<std::vector<boost::asio::ip::tcp::acceptor>> ListenOnAll(
    boost::asio::io_context* context, std::span<const boost::asio::ip::address> addresses,
    uint16_t port);

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_LISTENING_H_
