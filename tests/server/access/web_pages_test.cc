#include "server/access/web_pages.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

namespace refrain::server::access {
namespace {

WebPages Pages(std::string listen_host, std::string allowed_hosts = "", const char* origins = "") {
  return *WebPages::Make({.cors = *http::CorsPolicy::Parse(origins),
                          .listen_host = std::move(listen_host),
                          .allowed_hosts = std::move(allowed_hosts)});
}

bool Takes(const WebPages& pages, std::string_view host, std::string_view origin = "",
           std::string_view path = "/v1/completions") {
  http::Request request;
  request.path = path;
  if (!host.empty()) request.headers.emplace_back("Host", host);
  if (!origin.empty()) request.headers.emplace_back("Origin", origin);
  return pages.Check(request).ok();
}

TEST(WebPages, OnALoopbackAddressTheHostIsAnAddressOrLocal) {
  const WebPages pages = Pages("127.0.0.1");
  for (const char* host : {"", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "[::1]", "::1",
                           "10.1.2.3:80", "localhost", "LocalHost:8000", "localhost.",
                           "a.localhost:8000", "0.0.0.0:8000", "host.docker.internal:8000"}) {
    EXPECT_TRUE(Takes(pages, host)) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "evillocalhost",
        "host.internal.evil.example", "evilinternal", "127.0.0.1.evil.example", "127.1",
        "[evil.example]", "[", "[]", "]", ":", ":8000", ".", "localhost..", "localhost evil"}) {
    EXPECT_FALSE(Takes(pages, host)) << host;
  }
}

TEST(WebPages, HostsAreThoseThatWereConfigured) {
  const WebPages pages = Pages("localhost", "api.example.com, gpu01");
  EXPECT_TRUE(Takes(pages, "API.example.com:8000"));
  EXPECT_TRUE(Takes(pages, "gpu01"));
  EXPECT_TRUE(Takes(pages, "localhost"));
  EXPECT_FALSE(Takes(pages, "example.com"));
  EXPECT_TRUE(Takes(Pages("127.0.0.1", "*"), "evil.example"));
  // What others call a server that the network reaches, it cannot know.
  EXPECT_TRUE(Takes(Pages("0.0.0.0"), "evil.example"));
  EXPECT_TRUE(Takes(Pages("gpu01"), "evil.example"));
  EXPECT_FALSE(Takes(Pages("0.0.0.0", "gpu01"), "evil.example")) << "but it was told";
  EXPECT_TRUE(Takes(Pages("GPU01", "other"), "gpu01:8000")) << "the name that it listens on";
}

TEST(WebPages, OriginsAreTheServersOwnOrListed) {
  for (const char* listen_host : {"127.0.0.1", "0.0.0.0"}) {
    const WebPages pages = Pages(listen_host, "", "https://chat.example.com");
    EXPECT_TRUE(Takes(pages, "localhost:8000", "http://localhost:8000"));
    EXPECT_TRUE(Takes(pages, "localhost", "https://LOCALHOST")) << "TLS ended in front of it";
    EXPECT_TRUE(Takes(pages, "127.0.0.1:8000", "https://chat.example.com"));
    for (const char* origin :
         {"null", "http://localhost", "http://localhost:8001", "https://evil.example",
          "https://chat.example.com.evil.example", "localhost:8000", "http://", "://"}) {
      EXPECT_FALSE(Takes(pages, "localhost:8000", origin)) << origin;
    }
    EXPECT_FALSE(Takes(pages, "", "https://evil.example"));
  }
  EXPECT_TRUE(Takes(Pages("127.0.0.1", "", "*"), "localhost", "null"));
}

// A page whose name leads here has the same origin as the server, as far as its browser knows.
TEST(WebPages, ANameThatLeadsHereIsNoOriginOfItsOwn) {
  EXPECT_FALSE(Takes(Pages("::1"), "evil.example:8000", "http://evil.example:8000"));
  EXPECT_TRUE(Takes(Pages("::1", "good.example"), "good.example", "https://good.example"));
}

TEST(WebPages, HealthIsForEverybody) {
  for (const char* path : {"/health", "/ping", "/ready", "/live"}) {
    EXPECT_TRUE(Takes(Pages("127.0.0.1"), "evil.example", "https://evil.example", path)) << path;
  }
  for (const char* path : {"/metrics", "/v1/models", "/debug/cache", "/healthy"}) {
    EXPECT_FALSE(Takes(Pages("127.0.0.1"), "evil.example", "", path)) << path;
  }
}

TEST(WebPages, RefusesWhatIsNoHostName) {
  for (const char* text : {"https://a", "a:80", "A", "a/b", "[::1]"}) {
    const auto pages = WebPages::Make({.allowed_hosts = std::string("b ") + text});
    ASSERT_FALSE(pages.ok()) << text;
    EXPECT_NE(pages.status().message().find(std::string("\"") + text + "\""), std::string::npos);
    EXPECT_NE(pages.status().message().find("http.allowed_hosts"), std::string::npos);
  }
}

}  // namespace
}  // namespace refrain::server::access
