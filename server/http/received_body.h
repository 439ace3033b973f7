#ifndef REFRAIN_SERVER_HTTP_RECEIVED_BODY_H_
#define REFRAIN_SERVER_HTTP_RECEIVED_BODY_H_

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional/optional.hpp>
#include <cstdint>
#include <new>
#include <string>

namespace refrain::server::http {

// The body of a request as Beast's parser fills it: a string, like beast::http::string_body, but
// memory is taken for what has come and not for what Content-Length promises, and where there is
// none the read ends with not_enough_memory instead of an exception (which would leave the event
// loop, not the connection's coroutine).
struct ReceivedBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>&, boost::beast::error_code& error) {
      error = {};
    }

    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      const std::size_t before = body_.size();
      error = {};
      try {
        for (auto it = boost::asio::buffer_sequence_begin(buffers);
             it != boost::asio::buffer_sequence_end(buffers); ++it) {
          const boost::asio::const_buffer part = *it;
          body_.append(static_cast<const char*>(part.data()), part.size());
        }
      } catch (const std::bad_alloc&) {
        error = make_error_code(boost::system::errc::not_enough_memory);
      }
      return body_.size() - before;
    }

    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_RECEIVED_BODY_H_
