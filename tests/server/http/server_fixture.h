#ifndef REFRAIN_TESTS_SERVER_HTTP_SERVER_FIXTURE_H_
#define REFRAIN_TESTS_SERVER_HTTP_SERVER_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "server/http/server.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/eventually.h"

// A server over real sockets with a handler for each thing a test may want of one.
namespace refrain::server::http {

// What tests see of the replies they started.
struct Observed {
  std::atomic<int> alive{0};
  std::atomic<int> parts{0};
  std::atomic<int> ending{0};   // replies that were told of their last bytes
  std::atomic<bool> go{false};  // held replies wait for it
};

using refrain::testing::Eventually;

// Sends `parts` parts of `bytes` bytes as fast as they are taken.
class ManyParts final : public Reply {
 public:
  ManyParts(Observed* observed, int parts, size_t bytes)
      : observed_(observed), left_(parts), bytes_(bytes) {
    ++observed_->alive;
  }
  ~ManyParts() override { --observed_->alive; }

  ReplyPart Next() override {
    ReplyPart part;
    if (std::exchange(first_, false)) part.head = ResponseHead{.content_type = "text/plain"};
    part.body = std::string(bytes_, static_cast<char>('a' + left_ % 26));
    part.last = --left_ == 0;
    ++observed_->parts;
    return part;
  }
  void OnLastBytes() override { ++observed_->ending; }

 private:
  Observed* observed_;
  int left_;
  size_t bytes_;
  bool first_ = true;
};

// Answers once the test says so, with `begun` but for its head; wakes itself from another thread,
// as an engine does.
class Held final : public Reply {
 public:
  enum class Parts { kWhole, kFirstAtOnce, kBothHeld };

  Held(Observed* observed, Parts parts)
      : observed_(observed), at_once_(parts == Parts::kFirstAtOnce), two_(parts != Parts::kWhole) {
    ++observed_->alive;
  }
  ~Held() override {
    stop_ = true;
    if (waker_.joinable()) waker_.join();
    --observed_->alive;
  }
  void Start(std::function<void()> wakeup) override {
    waker_ = std::thread([this, wakeup = std::move(wakeup)] {
      while (!stop_) {
        if (observed_->go) wakeup();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  ReplyPart Next() override {
    if (!at_once_ && !observed_->go) return {};
    at_once_ = false;
    if (std::exchange(two_, false)) return {ResponseHead{}, "begun, "};
    return {ResponseHead{}, "held", true};
  }

 private:
  Observed* observed_;
  bool at_once_;
  bool two_;
  std::atomic<bool> stop_{false};
  std::thread waker_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}) {
    router_.Add({"GET", "/hello", [](Request) { return MakeReply({}, "hello"); }});
    router_.Add({"POST", "/echo", [](Request request) {
                   return MakeReply({.content_type = "text/plain"}, std::move(request.body));
                 }});
    router_.Add({"GET", "/where", [](Request request) {
                   return MakeReply({}, request.path + "?" + request.query);
                 }});
    router_.Add({"GET", "/under/*", [](Request request) { return MakeReply({}, request.path); }});
    router_.Add({"GET", "/stream", [this](Request request) -> std::unique_ptr<Reply> {
                   return std::make_unique<ManyParts>(&observed_, std::stoi(request.query), 1000);
                 }});
    router_.Add({"GET", "/whole", [this](Request request) -> std::unique_ptr<Reply> {
                   return std::make_unique<ManyParts>(&observed_, 1, std::stoul(request.query));
                 }});
    router_.Add({"GET", "/held", [this](Request request) -> std::unique_ptr<Reply> {
                   const auto parts = request.query == "begun"       ? Held::Parts::kFirstAtOnce
                                      : request.query == "two_parts" ? Held::Parts::kBothHeld
                                                                     : Held::Parts::kWhole;
                   return std::make_unique<Held>(&observed_, parts);
                 }});
    router_.Add(
        {"GET", "/throws", [](Request) -> std::unique_ptr<Reply> { throw std::bad_alloc(); }});
    router_.Add({"GET", "/slow",
                 [](Request) {
                   std::this_thread::sleep_for(std::chrono::milliseconds(300));
                   return MakeReply({}, "slow");
                 },
                 HandlerSpeed::kSlow});
    // Until the test says so.
    router_.Add({"GET", "/blocked",
                 [this](Request) {
                   ++observed_.alive;
                   while (!observed_.go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   --observed_.alive;
                   return MakeReply({}, "blocked");
                 },
                 HandlerSpeed::kSlow});
    router_.Add(
        {"GET", "/probe", [](Request) { return MakeReply({}, "probe"); }, HandlerSpeed::kProbe});
    router_.Add({"GET", "/whoami", [](Request request) {
                   if (request.notes != nullptr) request.notes->principal = "team-a";
                   return MakeReply({.status = 403}, "you");
                 }});
    if (!options.error_body) {
      options.error_body = [](int status, std::string_view message) {
        return std::to_string(status) + " " + std::string(message);
      };
    }
    auto server = Server::Start(std::move(options), &router_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  testing::RawClient Connect() { return testing::RawClient(server_->port()); }

  testing::RawResponse Once(std::string_view bytes) {
    testing::RawClient client = Connect();
    client.Send(bytes);
    return client.ReadResponse();
  }

  Observed observed_;
  Router router_;
  std::unique_ptr<Server> server_;
};

}  // namespace refrain::server::http

#endif  // REFRAIN_TESTS_SERVER_HTTP_SERVER_FIXTURE_H_
