#include "server/http/received_body.h"

#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/fields.hpp>
#include <cstdint>
#include <new>
#include <string>

#include "server/http/request_header.h"

namespace refrain::server::http {
namespace {

// Who announces 16 MiB and sends a byte has a byte's memory.
TEST(ReceivedBodyTest, TakesMemoryForWhatHasComeOnly) {
  boost::beast::http::header<true, boost::beast::http::fields> header;
  std::string body;
  ReceivedBody::reader reader(header, body);
  boost::beast::error_code error;
  reader.init(std::uint64_t{16} << 20, error);
  EXPECT_FALSE(error);
  EXPECT_EQ(reader.put(boost::asio::buffer("x", 1), error), 1u);
  EXPECT_FALSE(error);
  EXPECT_LT(body.capacity(), 1024u);
  EXPECT_EQ(reader.put(boost::asio::buffer("yz", 2), error), 2u);
  reader.finish(error);
  EXPECT_EQ(body, "xyz");
}

// Buffers whose copying finds no memory.
struct Unaffordable {
  struct const_iterator {
    bool done = false;
    boost::asio::const_buffer operator*() const { throw std::bad_alloc(); }
    const_iterator& operator++() {
      done = true;
      return *this;
    }
    friend bool operator==(const const_iterator&, const const_iterator&) = default;
  };
  const_iterator begin() const { return {}; }
  const_iterator end() const { return {true}; }
};

TEST(ReceivedBodyTest, WhatFindsNoMemoryIsAnErrorAndNoException) {
  boost::beast::http::header<true, boost::beast::http::fields> header;
  std::string body;
  ReceivedBody::reader reader(header, body);
  boost::beast::error_code error;
  EXPECT_EQ(reader.put(Unaffordable{}, error), 0u);
  EXPECT_EQ(error, boost::system::errc::not_enough_memory);

  const ReadFailure failure = ClassifyReadError(error, RequestParser(2048), ServerOptions());
  EXPECT_EQ(failure.status, 503);
  EXPECT_NE(failure.message.find("no memory"), std::string::npos) << failure.message;
}

}  // namespace
}  // namespace refrain::server::http
