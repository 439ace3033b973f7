#include "server/http/listening.h"

#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <string>
#include <vector>

namespace refrain::server::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

asio::ip::address Address(const char* text) { return asio::ip::make_address(text); }

bool Accepts(asio::io_context* context, const asio::ip::address& address, uint16_t port) {
  tcp::socket socket(*context);
  error_code error;
  socket.connect({address, port}, error);
  return !error;
}

TEST(ListeningTest, ListensOnEveryAddressAndOnePort) {
  asio::io_context context;
  const std::vector addresses = {Address("127.0.0.1"), Address("127.0.0.2")};
  const auto acceptors = ListenOnAll(&context, addresses, 0);
  ASSERT_TRUE(acceptors.ok()) << acceptors.status();
  ASSERT_EQ(acceptors->size(), 2u);
  const uint16_t port = (*acceptors)[0].local_endpoint().port();
  EXPECT_NE(port, 0);
  for (const auto& address : addresses) EXPECT_TRUE(Accepts(&context, address, port)) << address;
  EXPECT_FALSE(Accepts(&context, Address("127.0.0.3"), port));
}

// 203.0.113.0/24 is for documentation: no machine has it.
TEST(ListeningTest, LeavesOutAddressesThatTheMachineDoesNotHave) {
  asio::io_context context;
  const std::vector some = {Address("203.0.113.1"), Address("127.0.0.1")};
  const auto acceptors = ListenOnAll(&context, some, 0);
  ASSERT_TRUE(acceptors.ok()) << acceptors.status();
  ASSERT_EQ(acceptors->size(), 1u);
  EXPECT_EQ((*acceptors)[0].local_endpoint().address(), some[1]);
  const auto none = ListenOnAll(&context, std::vector{some[0]}, 0);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "bind: Cannot assign requested address");
}

TEST(ListeningTest, APortThatIsTakenOnOneAddressIsAnError) {
  asio::io_context context;
  const auto taken = Listen(&context, "127.0.0.2", 0);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const uint16_t port = (*taken)[0].local_endpoint().port();
  const std::vector addresses = {Address("127.0.0.1"), Address("127.0.0.2")};
  const auto acceptors = ListenOnAll(&context, addresses, port);
  ASSERT_FALSE(acceptors.ok());
  EXPECT_EQ(acceptors.status().message(), "bind: Address already in use");
  EXPECT_FALSE(Accepts(&context, addresses[0], port)) << "the first address' socket is left open";
}

TEST(ListeningTest, ListensOnTheAddressesOfAName) {
  asio::io_context context;
  const auto acceptors = Listen(&context, "localhost", 0);
  ASSERT_TRUE(acceptors.ok()) << acceptors.status();
  const uint16_t port = (*acceptors)[0].local_endpoint().port();
  error_code error;
  for (const auto& found : tcp::resolver(context).resolve("localhost", "")) {
    const auto address = found.endpoint().address();
    // A machine's list of names may have ::1 where there is no IPv6.
    tcp::acceptor probe(context);
    probe.open(address.is_v6() ? tcp::v6() : tcp::v4(), error);
    if (!error) probe.bind({address, 0}, error);
    if (error) continue;
    EXPECT_TRUE(Accepts(&context, address, port)) << address;
  }
}

TEST(ListeningTest, NamesTheHostThatIsUnknown) {
  asio::io_context context;
  const auto acceptors = Listen(&context, "no-such-host.invalid", 8000);
  ASSERT_FALSE(acceptors.ok());
  EXPECT_EQ(std::string(acceptors.status().message())
                .find("cannot listen on no-such-host.invalid:8000: unknown host: "),
            0u)
      << acceptors.status();
}

}  // namespace
}  // namespace refrain::server::http
