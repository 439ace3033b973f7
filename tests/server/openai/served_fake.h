#ifndef REFRAIN_TESTS_SERVER_OPENAI_SERVED_FAKE_H_
#define REFRAIN_TESTS_SERVER_OPENAI_SERVED_FAKE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/http/server.h"
#include "server/openai/service.h"
#include "tests/support/fake_engine.h"

namespace refrain::testing {

// The OpenAI API over a fake engine, on a free port, while it lives.
class ServedFake {
 public:
  explicit ServedFake(FakeEngineOptions engine_options = {},
                      server::http::ServerOptions options = {},
                      server::openai::Service::Options service_options = {.version = "9.9.9"})
      : log_(server::LogFormat::kText, server::LogLevel::kError),
        engine_(std::move(engine_options)),
        service_(std::move(service_options), &log_) {
    service_.AddRoutes(&router_);
    service_.SetEngine(&engine_);
    options.error_body = server::openai::Service::HttpErrorBody;
    server_ = *server::http::Server::Start(std::move(options), &router_);
  }
  ~ServedFake() { server_->Stop(std::chrono::milliseconds(0)); }

  uint16_t port() const { return server_->port(); }
  server::http::Server& server() { return *server_; }
  FakeEngine& engine() { return engine_; }

 private:
  server::Log log_;
  FakeEngine engine_;
  server::http::Router router_;
  server::openai::Service service_;
  std::unique_ptr<server::http::Server> server_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_OPENAI_SERVED_FAKE_H_
