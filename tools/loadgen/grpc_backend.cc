#include "tools/loadgen/grpc_backend.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/annotated_mutex.h"
#include "proto/error_details.pb.h"
#include "proto/inference.grpc.pb.h"

namespace refrain::loadgen {
namespace {

// A call's deadline is told to its server, too, which may keep it a moment earlier.
constexpr double kEarlyS = 0.05;

const char* CodeName(grpc::StatusCode code) {
  constexpr const char* kNames[] = {"OK",
                                    "CANCELLED",
                                    "UNKNOWN",
                                    "INVALID_ARGUMENT",
                                    "DEADLINE_EXCEEDED",
                                    "NOT_FOUND",
                                    "ALREADY_EXISTS",
                                    "PERMISSION_DENIED",
                                    "RESOURCE_EXHAUSTED",
                                    "FAILED_PRECONDITION",
                                    "ABORTED",
                                    "OUT_OF_RANGE",
                                    "UNIMPLEMENTED",
                                    "INTERNAL",
                                    "UNAVAILABLE",
                                    "DATA_LOSS",
                                    "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

// `timed_out`: the time that loadgen allows was over.
Failure FailureOf(const grpc::Status& status, bool had_tokens, bool timed_out) {
  const std::string& message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      if (timed_out) return {"timeout", message};
      break;  // a server's own
    case grpc::StatusCode::UNAVAILABLE:
      if (had_tokens) return {"broken_stream", message};
      if (absl::StrContains(absl::AsciiStrToLower(message), "connection refused")) {
        return {"connection_refused", message};
      }
      if (absl::StrContains(message, "handshake failed")) return {"tls_failed", message};
      break;
    default:
      break;
  }
  return {absl::StrCat("grpc_", CodeName(status.error_code())), message};
}

// Of a server that says when to come back (google.rpc.RetryInfo).
std::optional<double> RetryAfterS(const grpc::Status& status) {
  google::rpc::Status told;
  if (status.error_details().empty() || !told.ParseFromString(status.error_details())) return {};
  for (const auto& detail : told.details()) {
    google::rpc::RetryInfo retry;
    if (detail.Is<google::rpc::RetryInfo>() && detail.UnpackTo(&retry)) {
      return static_cast<double>(retry.retry_delay().seconds()) +
             retry.retry_delay().nanos() * 1e-9;
    }
  }
  return {};
}

// How many calls gRPC still holds; a back end ends after the last of them.
class CallCount {
 public:
  void Add() {
    const MutexLock lock(mutex_);
    ++count_;
  }
  void Remove() {
    const MutexLock lock(mutex_);
    if (--count_ == 0) none_.NotifyAll();
  }
  void WaitForNone() {
    const MutexLock lock(mutex_);
    while (count_ > 0) none_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  ConditionVariable none_;
  int64_t count_ REFRAIN_GUARDED_BY(mutex_) = 0;
};

// One call. gRPC's threads read; what they read goes to the loop's thread, in order, where the sink
// is. It holds itself until gRPC has done with it.
class Call final : public grpc::ClientReadReactor<v1::GenerateResponse>,
                   public std::enable_shared_from_this<Call> {
 public:
  Call(EventLoop* loop, CallCount* count, AnswerSink* sink, std::function<void(Call*)> ended)
      : loop_(loop), count_(count), sink_(sink), ended_(std::move(ended)) {}

  void Start(v1::Inference::Stub* stub, const std::string& encoded,
             const GrpcBackendOptions& options) {
    request_.ParseFromString(encoded);
    const auto timeout = std::chrono::duration_cast<std::chrono::system_clock::duration>(
        std::chrono::duration<double>(options.timeout_s));
    context_.set_deadline(std::chrono::system_clock::now() + timeout);
    deadline_s_ = loop_->NowS() + options.timeout_s;
    if (!options.api_key.empty()) {
      context_.AddMetadata("authorization", absl::StrCat("Bearer ", options.api_key));
    }
    self_ = shared_from_this();
    count_->Add();
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  // On the loop's thread: the sink hears of it now, and of nothing more.
  void Cancel() {
    context_.TryCancel();
    AnswerEnd end;
    end.failure = Failure{"unfinished", "the run ended before the answer"};
    std::exchange(sink_, nullptr)->OnEnd(loop_->NowS(), end);
  }

  // --- on gRPC's threads ---
  void OnReadDone(bool ok) override {
    if (!ok) return;
    loop_->Post([self = shared_from_this(), at_s = loop_->NowS(), response = std::move(response_)] {
      self->TakeResponse(at_s, response);
    });
    response_ = {};
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    CallCount* const count = count_;
    loop_->Post([self = std::move(self_), at_s = loop_->NowS(), status] {
      self->TakeStatus(at_s, status);
    });
    // From here on the back end may end. This thread holds nothing of the call any more: its
    // context holds the channel, and gRPC's thread that let go of the last channel would wait for
    // itself.
    count->Remove();
  }

 private:
  void TakeResponse(double at_s, const v1::GenerateResponse& response) {
    if (sink_ == nullptr) return;
    for (const v1::ChoiceDelta& choice : response.choices()) {
      const std::vector<int32_t> ids(choice.token_ids().begin(), choice.token_ids().end());
      // As over HTTP, an answer that is nothing but its end has one token: the end token.
      const bool is_end = choice.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
      if (is_end) end_.finished_s = at_s;
      const bool only_end = !had_tokens_ && is_end;
      if (ids.empty() && !only_end) {
        // What was held back of tokens that came before.
        if (!choice.text().empty()) sink_->OnTokens(at_s, 0, choice.text(), ids);
        continue;
      }
      had_tokens_ = true;
      sink_->OnTokens(at_s, std::max<int32_t>(1, static_cast<int32_t>(ids.size())), choice.text(),
                      ids);
    }
    if (!response.has_usage()) return;
    end_.prompt_tokens = response.usage().prompt_tokens();
    end_.output_tokens = response.usage().completion_tokens();
    end_.cached_tokens = response.usage().cached_tokens();
  }

  void TakeStatus(double at_s, const grpc::Status& status) {
    if (sink_ == nullptr) return;
    if (!status.ok()) {
      end_.failure = FailureOf(status, had_tokens_, at_s >= deadline_s_ - kEarlyS);
      end_.retry_after_s = RetryAfterS(status);
    } else if (end_.output_tokens == 0) {
      end_.failure = Failure{"no_tokens", "usage says 0 output tokens"};
    } else if (!had_tokens_) {
      end_.failure = Failure{"no_tokens", "the answer holds no token"};
    } else if (!end_.finished_s.has_value()) {
      end_.failure = Failure{"broken_stream", "the answer ended without a finish_reason"};
    }
    AnswerSink* const sink = std::exchange(sink_, nullptr);
    ended_(this);
    sink->OnEnd(at_s, end_);
  }

  EventLoop* const loop_;
  CallCount* const count_;
  AnswerSink* sink_;  // the loop's thread's
  const std::function<void(Call*)> ended_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  AnswerEnd end_;
  double deadline_s_ = 0;
  bool had_tokens_ = false;
  std::shared_ptr<Call> self_;  // until OnDone
};

std::shared_ptr<grpc::ChannelCredentials> CredentialsFor(const std::optional<GrpcTls>& tls) {
  if (!tls.has_value()) return grpc::InsecureChannelCredentials();
  if (tls->verify) return grpc::SslCredentials({.pem_root_certs = tls->authorities});
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

class GrpcBackend final : public Backend {
 public:
  GrpcBackend(EventLoop* loop, const GrpcBackendOptions& options)
      : loop_(loop), options_(options), credentials_(CredentialsFor(options.tls)) {}

  ~GrpcBackend() override {
    CancelAll();
    count_.WaitForNone();
  }

  std::string Encode(const GenerationRequest& request) const override {
    v1::GenerateRequest encoded;
    encoded.set_model(options_.model);
    switch (request.form) {
      case PromptForm::kTokenIds:
        encoded.mutable_tokens()->mutable_ids()->Add(request.token_ids.begin(),
                                                     request.token_ids.end());
        break;
      case PromptForm::kText:
        encoded.mutable_text()->set_text(request.text);
        break;
      case PromptForm::kChat:
        for (const ChatMessage& message : request.messages) {
          v1::ChatMessage* added = encoded.mutable_chat()->add_messages();
          added->set_role(message.role);
          added->set_content(message.content);
        }
        break;
    }
    v1::GenerationParams* params = encoded.mutable_params();
    params->mutable_sampling()->set_temperature(options_.temperature);
    params->mutable_stop()->set_max_tokens(request.output_tokens);
    params->mutable_stop()->set_ignore_eos(options_.ignore_eos);
    return encoded.SerializeAsString();
  }

  void Start(std::string encoded, AnswerSink* sink) override {
    Connection* const connection = ConnectionWithRoom();
    ++connection->calls;
    const auto call = std::make_shared<Call>(loop_, &count_, sink, [this, connection](Call* ended) {
      --connection->calls;
      calls_.erase(ended);
    });
    calls_.emplace(call.get(), call);
    call->Start(connection->stub.get(), encoded, options_);
  }

  void CancelAll() override {
    for (Connection& connection : connections_) connection.calls = 0;
    for (const auto& [address, call] : std::exchange(calls_, {})) call->Cancel();
  }

 private:
  struct Connection {
    std::unique_ptr<v1::Inference::Stub> stub;
    int calls = 0;  // under way
  };

  Connection* ConnectionWithRoom() {
    for (Connection& connection : connections_) {
      if (connection.calls < options_.calls_per_connection) return &connection;
    }
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // else channels of one address share one
    connections_.push_back(
        {v1::Inference::NewStub(grpc::CreateCustomChannel(options_.address, credentials_, own))});
    return &connections_.back();
  }

  EventLoop* const loop_;
  const GrpcBackendOptions options_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::deque<Connection> connections_;  // made as they are needed, the first filled first
  CallCount count_;
  std::map<Call*, std::shared_ptr<Call>> calls_;  // under way
};

}  // namespace

std::unique_ptr<Backend> MakeGrpcBackend(EventLoop* loop, const GrpcBackendOptions& options) {
  return std::make_unique<GrpcBackend>(loop, options);
}

}  // namespace refrain::loadgen
