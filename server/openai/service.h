#ifndef REFRAIN_SERVER_OPENAI_SERVICE_H_
#define REFRAIN_SERVER_OPENAI_SERVICE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/annotated_mutex.h"
#include "engine/engine.h"
#include "server/access/gate.h"
#include "server/byte_budget.h"
#include "server/http/router.h"
#include "server/log.h"
#include "server/openai/protocol.h"
#include "server/unread_answers.h"

namespace refrain::server::openai {

// The OpenAI-style HTTP API over one engine, with the health endpoints beside it. It exists, and
// says that it loads, before the engine does. It does not own the engine: whoever does ends the
// HTTP server first.
//
// Handlers run on any thread. The setters are called by the daemon, on any thread.
class Service {
 public:
  struct Options {
    std::string version;
    int32_t max_choices = 128;     // limits.n
    int32_t max_beams = 64;        // engine.max_sequences
    size_t max_prompts = 1024;     // of one call: limits.queued_requests
    access::Gate* gate = nullptr;  // outlives the service; null = everyone, without limits
    bool log_prompts = false;      // log.prompts: request bodies into the request log
    bool tokenizer_info = false;   // server.tokenizer_info: whether there is such a route
    // Of the answers of /tokenize and /detokenize and of the conversations that wait for being
    // encoded together, small ones apart: limits.bodies_bytes.
    size_t held_bytes = 256 << 20;
    std::shared_ptr<UnreadAnswers> unread;  // counts what is generated; null: nobody does
  };

  Service(Options options, Log* log);

  // `router` outlives the service's last answer: /openapi.json tells of all its routes.
  void AddRoutes(http::Router* router);

  void SetEngine(engine::Engine* engine);  // ready from now on
  void SetDraining() { draining_ = true; }
  // Whether the gRPC front end does, which says so nowhere itself: else nobody is healthy here.
  void SetGrpcAnswers(bool answers) { grpc_answers_ = answers; }

  // The body of an error that the HTTP layer found.
  static std::string HttpErrorBody(int status, std::string_view message);

 private:
  // Calls of many choices are answered from a worker thread, wherever this runs.
  std::unique_ptr<http::Reply> Generate(Endpoint endpoint, http::Request request);
  std::unique_ptr<http::Reply> SubmitCall(Endpoint endpoint, const Json& body,
                                          const http::Request& request);
  void NoteBody(const http::Request& request) const;
  std::unique_ptr<http::Reply> RefuseCall(const http::Request& request,
                                          const absl::Status& status) const;
  std::unique_ptr<http::Reply> Models() const;
  std::unique_ptr<http::Reply> Model(std::string_view id) const;
  std::unique_ptr<http::Reply> Health() const;
  std::unique_ptr<http::Reply> Ready() const;
  std::unique_ptr<http::Reply> Version() const;
  std::unique_ptr<http::Reply> OpenApi() const;
  std::unique_ptr<http::Reply> Tokenize(const http::Request& request) const;
  std::unique_ptr<http::Reply> TokenizerInfo() const;
  std::unique_ptr<http::Reply> Detokenize(const http::Request& request) const;

  absl::StatusOr<engine::Engine*> LoadedEngine() const;
  ModelLimits LimitsOf(const engine::Engine& engine) const;
  // Whose request it is, and its place among those of its key.
  absl::Status Admit(const http::Request& request, access::Principal* principal,
                     access::Ticket* ticket) const;
  absl::Status AdmitCall(const http::Request& request, GenerationCall* call,
                         access::Ticket* ticket) const;
  // `bytes` of `owner` that count as held as long as the result lives, and its body does with it.
  absl::StatusOr<std::shared_ptr<const void>> HoldWithBody(std::shared_ptr<const void> body,
                                                           size_t bytes,
                                                           const std::string& owner) const;
  // Its conversation counts as held until the prompt is encoded.
  absl::Status HoldConversation(const http::Request& request, GenerationCall* call);
  // What else of its requests waits and runs with them, where that is much.
  absl::Status HoldRules(const GenerationCall& call, std::unique_ptr<HeldBytes>* hold) const;
  void LogIgnoredFields(const GenerationCall& call);

  const Options options_;
  Log* const log_;
  const http::Router* router_ = nullptr;
  std::atomic<engine::Engine*> engine_{nullptr};
  std::atomic<bool> draining_{false};
  std::atomic<bool> grpc_answers_{true};
  std::atomic<uint64_t> next_call_{1};
  const std::shared_ptr<ByteBudget> held_;  // Options::held_bytes

  Mutex mutex_;
  std::set<std::string> logged_fields_ REFRAIN_GUARDED_BY(mutex_);  // bounded
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_SERVICE_H_
