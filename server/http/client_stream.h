#ifndef REFRAIN_SERVER_HTTP_CLIENT_STREAM_H_
#define REFRAIN_SERVER_HTTP_CLIENT_STREAM_H_

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace refrain::server::http {

// The bytes to and from one client, with or without TLS, as one asynchronous stream, so that what
// reads and writes is compiled once. At most one read and one write are under way at a time; they
// may be so together. Inside http/ only.
class ClientStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  // `tls` null: the bytes go as they are.
  ClientStream(boost::asio::ip::tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> tls)
      : tcp_(std::move(socket)), tls_context_(std::move(tls)) {
    if (tls_context_ != nullptr) tls_.emplace(tcp_, *tls_context_);
  }

  bool encrypted() const { return tls_.has_value(); }
  executor_type get_executor() { return tcp_.get_executor(); }
  boost::asio::ip::tcp::socket& socket() { return tcp_.socket(); }
  boost::beast::tcp_stream& tcp() { return tcp_; }
  void close() { tcp_.close(); }

  // Only when encrypted().
  template <typename Token>
  auto async_handshake(Token&& token) {
    return tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Token>(token));
  }
  template <typename Token>
  auto async_shutdown(Token&& token) {
    return tls_->async_shutdown(std::forward<Token>(token));
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return tls_.has_value() ? tls_->async_read_some(buffers, std::forward<Token>(token))
                            : tcp_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return tls_.has_value() ? tls_->async_write_some(buffers, std::forward<Token>(token))
                            : tcp_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  boost::beast::tcp_stream tcp_;
  const std::shared_ptr<boost::asio::ssl::context> tls_context_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_CLIENT_STREAM_H_
