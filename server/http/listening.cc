#include "server/http/listening.h"

#include <algorithm>
#include <boost/asio/ip/v6_only.hpp>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "server/concat.h"

namespace refrain::server::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

absl::Status Failed(std::string_view call, const error_code& error) {
  return absl::UnavailableError(Concat(call, ": ", error.message()));
}

// Not OK with error_code of the failed call in `error`.
absl::Status ListenOn(tcp::acceptor* acceptor, const tcp::endpoint& endpoint, bool one_of_several,
                      error_code* error) {
  acceptor->open(endpoint.protocol(), *error);
  if (*error) return Failed("socket", *error);
  acceptor->set_option(tcp::acceptor::reuse_address(true), *error);
  if (*error) return Failed("SO_REUSEADDR", *error);
  if (one_of_several && endpoint.address().is_v6()) {
    acceptor->set_option(asio::ip::v6_only(true), *error);  // IPv4 has a socket of its own
    if (*error) return Failed("IPV6_V6ONLY", *error);
  }
  acceptor->bind(endpoint, *error);
  if (*error) return Failed("bind", *error);
  acceptor->listen(asio::socket_base::max_listen_connections, *error);
  if (*error) return Failed("listen", *error);
  return absl::OkStatus();
}

bool TellsOfAnAbsentAddress(const error_code& error) {
  return error == asio::error::address_family_not_supported ||
         error == boost::system::errc::address_not_available;
}

absl::StatusOr<std::vector<asio::ip::address>> AddressesOf(asio::io_context* context,
                                                           const std::string& host) {
  error_code error;
  if (const auto address = asio::ip::make_address(host, error); !error) return {{address}};
  std::vector<asio::ip::address> addresses;
  tcp::resolver resolver(*context);
  for (const auto& found : resolver.resolve(host, "", error)) {
    const auto address = found.endpoint().address();
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  }
  if (addresses.empty()) return Failed("unknown host", error);
  return addresses;
}

}  // namespace

absl::StatusOr<std::vector<tcp::acceptor>> ListenOnAll(asio::io_context* context,
                                                       std::span<const asio::ip::address> addresses,
                                                       uint16_t port) {
  std::vector<tcp::acceptor> acceptors;
  absl::Status absent;
  for (const asio::ip::address& address : addresses) {
    tcp::acceptor acceptor(*context);
    error_code error;
    const absl::Status status = ListenOn(&acceptor, {address, port}, addresses.size() > 1, &error);
    if (TellsOfAnAbsentAddress(error)) {
      absent = status;
      continue;
    }
    if (!status.ok()) return status;
    port = acceptor.local_endpoint(error).port();
    if (error) return Failed("local address", error);
    acceptors.push_back(std::move(acceptor));
  }
  if (acceptors.empty()) return absent;
  return acceptors;
}

absl::StatusOr<std::vector<tcp::acceptor>> Listen(asio::io_context* context,
                                                  const std::string& host, uint16_t port) {
  const auto failed = [&](const absl::Status& status) {
    return absl::UnavailableError(
        Concat("cannot listen on ", host, ":", port, ": ", status.message()));
  };
  const auto addresses = AddressesOf(context, host);
  if (!addresses.ok()) return failed(addresses.status());
  auto acceptors = ListenOnAll(context, *addresses, port);
  if (!acceptors.ok()) return failed(acceptors.status());
  return acceptors;
}

}  // namespace refrain::server::http
