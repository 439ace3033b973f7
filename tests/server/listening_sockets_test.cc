#include "server/listening_sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace refrain::server {
namespace {

SocketAddress Address(const std::string& text) {
  const auto addresses = AddressesOf(text);
  EXPECT_TRUE(addresses.ok()) << addresses.status();
  EXPECT_EQ(addresses->size(), 1u);
  return (*addresses)[0];
}

bool Accepts(SocketAddress address, uint16_t port) {
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
  }
  const int socket = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) == 0;
  ::close(socket);
  return connected;
}

TEST(ListeningSocketsTest, ListenAtEveryAddressAndOnePort) {
  const std::vector addresses = {Address("127.0.0.1"), Address("127.0.0.2")};
  const auto sockets = ListenAtAll(addresses, 0);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  ASSERT_EQ(sockets->size(), 2u);
  const uint16_t port = (*sockets)[0].port();
  EXPECT_NE(port, 0);
  EXPECT_EQ((*sockets)[1].port(), port);
  for (const SocketAddress& address : addresses) EXPECT_TRUE(Accepts(address, port));
  EXPECT_FALSE(Accepts(Address("127.0.0.3"), port));
}

TEST(ListeningSocketsTest, AreClosedWithTheirOwnersUnlessReleased) {
  auto sockets = ListenAt("127.0.0.1", 0);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  const uint16_t port = (*sockets)[0].port();
  const int released = (*sockets)[0].Release();
  sockets->clear();
  EXPECT_TRUE(Accepts(Address("127.0.0.1"), port));
  { const ListeningSocket owner(released, AF_INET, port); }
  EXPECT_FALSE(Accepts(Address("127.0.0.1"), port));
}

// 203.0.113.0/24 is for documentation: no machine has it.
TEST(ListeningSocketsTest, LeaveOutAddressesThatTheMachineDoesNotHave) {
  const std::vector some = {Address("203.0.113.1"), Address("127.0.0.1")};
  const auto sockets = ListenAtAll(some, 0);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  ASSERT_EQ(sockets->size(), 1u);
  EXPECT_TRUE(Accepts(some[1], (*sockets)[0].port()));
  const auto none = ListenAt("203.0.113.1", 0);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "bind: Cannot assign requested address");
}

TEST(ListeningSocketsTest, APortThatIsTakenAtOneAddressIsAnError) {
  const auto taken = ListenAt("127.0.0.2", 0);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const uint16_t port = (*taken)[0].port();
  const auto sockets = ListenAtAll(std::vector{Address("127.0.0.1"), Address("127.0.0.2")}, port);
  ASSERT_FALSE(sockets.ok());
  EXPECT_EQ(sockets.status().message(), "bind: Address already in use");
  EXPECT_FALSE(Accepts(Address("127.0.0.1"), port)) << "the first address' socket is left open";
}

TEST(ListeningSocketsTest, ListenAtTheAddressesOfAName) {
  const auto sockets = ListenAt("localhost", 0);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  const auto addresses = AddressesOf("localhost");
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  for (const SocketAddress& address : *addresses) {
    // A list of names may have ::1 where there is no IPv6.
    const bool here = ListenAtAll(std::vector{address}, 0).ok();
    EXPECT_EQ(Accepts(address, (*sockets)[0].port()), here);
  }
}

TEST(ListeningSocketsTest, AnUnknownHostIsSaidToBe) {
  const auto sockets = ListenAt("no-such-host.invalid", 8000);
  ASSERT_FALSE(sockets.ok());
  EXPECT_EQ(std::string(sockets.status().message()).find("unknown host: "), 0u) << sockets.status();
}

}  // namespace
}  // namespace refrain::server
