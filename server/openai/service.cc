#include "server/openai/service.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "server/access/http_access.h"
#include "server/concat.h"
#include "server/detokenize.h"
#include "server/error_reply.h"
#include "server/form_error.h"
#include "server/generation_note.h"
#include "server/json.h"
#include "server/openai/field_reader.h"
#include "server/openai/generation_reply.h"
#include "server/openai/openapi.h"
#include "server/openai/sampling_fields.h"
#include "server/openai/tokenize_call.h"
#include "server/openai/tokenize_reply.h"
#include "server/openai/tokenizer_info.h"
#include "server/rule_bytes.h"
#include "server/served_model.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {
namespace {

// What an I/O thread takes in itself: each choice costs some microseconds, each prompt some more.
constexpr size_t kQuickChoices = 16;
constexpr size_t kMaxLoggedFields = 256;
constexpr char kTimeoutHeader[] = "x-request-timeout";

// The seconds of the header X-Request-Timeout, for clients that cannot add to the body.
absl::StatusOr<std::optional<double>> TimeoutOf(const http::Request& request) {
  const std::optional<std::string_view> header = request.FindHeader(kTimeoutHeader);
  if (!header.has_value()) return std::nullopt;
  const std::string_view text = *header;
  double seconds = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() ||
      !kTimeoutRange.Contains(seconds)) {
    return absl::InvalidArgumentError(Concat("the header X-Request-Timeout is \"",
                                             text.substr(0, 32), "\"; expected seconds, ",
                                             kTimeoutRange.Text()));
  }
  return seconds;
}

std::unique_ptr<http::Reply> JsonReply(std::string body, int status = 200) {
  http::ResponseHead head;
  head.status = status;
  return http::MakeReply(std::move(head), std::move(body));
}

std::string ModelObject(const engine::ModelInfo& model) {
  std::string body = "{\"id\":";
  AppendJsonString(model.served_name, &body);
  ConcatTo(&body, ",\"object\":\"model\",\"created\":", model.created_unix_s,
           ",\"owned_by\":\"refrain\",\"root\":");
  AppendJsonString(model.served_name, &body);
  ConcatTo(&body, ",\"parent\":null,\"max_model_len\":", model.max_context_tokens,
           ",\"permission\":[]}");
  return body;
}

}  // namespace

Service::Service(Options options, Log* log)
    : options_(std::move(options)),
      log_(log),
      held_(std::make_shared<ByteBudget>(options_.held_bytes)) {}

void Service::AddRoutes(http::Router* router) {
  router_ = router;
  using http::HandlerSpeed;
  const auto add = [&](const char* method, const char* path, http::Router::Handler handler,
                       HandlerSpeed speed = HandlerSpeed::kQuick) {
    router->Add({method, path, std::move(handler), speed});
  };
  add("POST", "/v1/completions", [this](http::Request request) {
    return Generate(Endpoint::kCompletions, std::move(request));
  });
  add("POST", "/v1/chat/completions", [this](http::Request request) {
    return Generate(Endpoint::kChatCompletions, std::move(request));
  });
  add("POST", "/v1/responses",
      [this](http::Request request) { return Generate(Endpoint::kResponses, std::move(request)); });
  add("GET", "/v1/models", [this](const http::Request&) { return Models(); });
  add("GET", "/v1/models/*", [this](const http::Request& request) {
    return Model(std::string_view(request.path).substr(sizeof("/v1/models/") - 1));
  });
  add("GET", "/health", [this](const http::Request&) { return Health(); });
  // Where other servers have it, too.
  for (const char* method : {"GET", "POST"}) {
    // No key is asked for: what strangers send is not kept.
    router->Add({.method = method,
                 .path = "/ping",
                 .handler = [this](const http::Request&) { return Health(); },
                 .reads_body = false});
  }
  add("GET", "/ready", [this](const http::Request&) { return Ready(); });
  add("GET", "/live", [](const http::Request&) { return JsonReply("{\"status\":\"alive\"}"); });
  add("GET", "/version", [this](const http::Request&) { return Version(); });
  add(
      "GET", "/openapi.json", [this](const http::Request&) { return OpenApi(); },
      HandlerSpeed::kSlow);
  // A conversation is rendered there and then.
  add(
      "POST", "/tokenize", [this](const http::Request& request) { return Tokenize(request); },
      HandlerSpeed::kSlow);
  if (options_.tokenizer_info) {
    add(
        "GET", "/tokenizer_info", [this](const http::Request&) { return TokenizerInfo(); },
        HandlerSpeed::kSlow);  // a template may be long
  }
  add("POST", "/detokenize", [this](const http::Request& request) { return Detokenize(request); });
}

void Service::SetEngine(engine::Engine* engine) { engine_ = engine; }

std::string Service::HttpErrorBody(int status, std::string_view message) {
  ApiError error;
  error.http_status = status;
  error.message = std::string(message);
  error.type = status >= 500 ? "server_error" : "invalid_request_error";
  if (status == 404) error.code = "unknown_url";
  if (status == 405) error.code = "method_not_allowed";
  return ErrorBody(error);
}

absl::StatusOr<engine::Engine*> Service::LoadedEngine() const {
  engine::Engine* engine = engine_;
  if (engine == nullptr) {
    return StillLoading();
  }
  return engine;
}

ModelLimits Service::LimitsOf(const engine::Engine& engine) const {
  ModelLimits limits = server::LimitsOf(engine, options_.max_choices, options_.max_beams);
  limits.max_prompts = options_.max_prompts;
  limits.max_conversation_bytes = held_->bytes();
  return limits;
}

// First of all: those that are refused are what one looks for.
void Service::NoteBody(const http::Request& request) const {
  if (!options_.log_prompts || request.notes == nullptr) return;
  AppendBody(request.body, &request.notes->details);
}

std::unique_ptr<http::Reply> Service::Generate(Endpoint endpoint, http::Request request) {
  NoteBody(request);
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return RefuseCall(request, engine.status());
  const absl::StatusOr<Json> body = ParseJson(request.body);
  if (!body.ok()) return RefuseCall(request, body.status());
  if (request.on_worker || ChoicesAskedFor(endpoint, *body) <= kQuickChoices) {
    return SubmitCall(endpoint, *body, request);
  }
  // Parsed once more there: its values may take many times what counts of it while it waits.
  return http::MakeReplyOnWorker(
      [this, endpoint, request = std::make_shared<const http::Request>(std::move(request))] {
        return SubmitCall(endpoint, *ParseJson(request->body), *request);
      });
}

std::unique_ptr<http::Reply> Service::RefuseCall(const http::Request& request,
                                                 const absl::Status& status) const {
  // Not the message: it quotes the request.
  const ApiError error = ApiErrorFromStatus(status);
  log_->Debug("request refused", {{"request", request.id},
                                  {"code", error.code.value_or(error.type)},
                                  {"param", error.param ? FieldForLogs(*error.param) : ""}});
  if (request.notes != nullptr) AppendRefusal(status, &request.notes->details);
  return MakeErrorReply(status);
}

std::unique_ptr<http::Reply> Service::SubmitCall(Endpoint endpoint, const Json& body,
                                                 const http::Request& request) {
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return RefuseCall(request, engine.status());
  absl::StatusOr<GenerationCall> call = ReadGenerationCall(endpoint, body, LimitsOf(**engine));
  if (!call.ok()) return RefuseCall(request, call.status());
  LogIgnoredFields(*call);

  GenerationReply::Parts parts;
  if (absl::Status status = AdmitCall(request, &*call, &parts.ticket); !status.ok()) {
    return RefuseCall(request, status);
  }
  if (absl::Status status = HoldConversation(request, &*call); !status.ok()) {
    return RefuseCall(request, status);
  }
  if (absl::Status status = HoldRules(*call, &parts.rules_hold); !status.ok()) {
    return RefuseCall(request, status);
  }
  if (GenerationReply::KeepsWhole(*call))
    parts.held = std::make_unique<HeldBytes>(held_, call->first().tenant);
  parts.notes = request.notes;
  parts.request_id = request.id;
  parts.tokenizer = &(*engine)->tokenizer();
  parts.model = (*engine)->model().served_name;
  parts.created_unix_s = std::time(nullptr);
  parts.log = log_;
  const std::shared_ptr<UnreadAnswers::Answer> unread =
      options_.unread == nullptr ? nullptr : options_.unread->Begin(call->first().tenant);
  if (unread != nullptr) parts.disposal = options_.unread->disposal();
  // The streams of the prompts before that end as they are dropped.
  const auto give_up = [&](const absl::Status& status) {
    for (const auto& started : parts.streams) started->Cancel();
    return RefuseCall(request, status);
  };
  for (size_t i = 0; i < call->requests.size(); ++i) {
    engine::Request one = call->requests[i];
    one.id = call->requests.size() == 1 ? request.id : Concat(request.id, "-", i);
    auto stream = (*engine)->Submit(std::move(one));
    if (!stream.ok()) return give_up(NamingForm(stream.status(), call->first().format.get()));
    if (unread != nullptr) options_.unread->Count(unread, *stream);
    parts.streams.push_back(*std::move(stream));
  }
  if (options_.gate != nullptr) {
    const absl::Status has_key = options_.gate->StillHas(call->first().tenant);
    if (!has_key.ok()) return give_up(has_key);
  }
  return std::make_unique<GenerationReply>(*call, std::move(parts));
}

absl::Status Service::Admit(const http::Request& request, access::Principal* principal,
                            access::Ticket* ticket) const {
  if (options_.gate == nullptr) return absl::OkStatus();
  absl::StatusOr<access::Principal> found =
      options_.gate->Authenticate(access::Area::kInference, request.Header("authorization"));
  if (!found.ok()) return found.status();
  *principal = *std::move(found);
  absl::StatusOr<access::Ticket> admitted = options_.gate->Admit(*principal);
  if (!admitted.ok()) return admitted.status();
  *ticket = *std::move(admitted);
  return absl::OkStatus();
}

absl::Status Service::AdmitCall(const http::Request& request, GenerationCall* call,
                                access::Ticket* ticket) const {
  const absl::StatusOr<std::optional<double>> timeout_s = TimeoutOf(request);
  if (!timeout_s.ok()) return timeout_s.status();
  access::Principal principal;
  if (absl::Status status = Admit(request, &principal, ticket); !status.ok()) return status;
  for (engine::Request& one : call->requests) {
    one.tenant = principal.key_name;
    one.tenant_weight = principal.weight;
    one.arrived = request.arrived;
    if (timeout_s->has_value()) {
      one.timeout_s = std::min(**timeout_s, one.timeout_s.value_or(**timeout_s));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const void>> Service::HoldWithBody(std::shared_ptr<const void> body,
                                                                  size_t bytes,
                                                                  const std::string& owner) const {
  struct Hold {
    Hold(std::shared_ptr<const void> body, std::shared_ptr<ByteBudget> budget, std::string owner)
        : body(std::move(body)), more(std::move(budget), std::move(owner)) {}
    const std::shared_ptr<const void> body;
    HeldBytes more;
  };
  if (bytes <= kUncountedBytes) return body;
  auto both = std::make_shared<Hold>(std::move(body), held_, owner);
  if (absl::Status status = HoldBytes(bytes, &both->more); !status.ok()) return status;
  return both;
}

absl::Status Service::HoldConversation(const http::Request& request, GenerationCall* call) {
  const absl::StatusOr<std::shared_ptr<const void>> hold =
      HoldWithBody(request.body_hold, call->conversation_bytes, call->first().tenant);
  if (!hold.ok()) return hold.status();
  const uint64_t number = call->requests.size() > 1 ? next_call_.fetch_add(1) : 0;
  for (engine::Request& one : call->requests) {
    one.prompt_hold = *hold;
    one.call = number;
  }
  return absl::OkStatus();
}

absl::Status Service::HoldRules(const GenerationCall& call,
                                std::unique_ptr<HeldBytes>* hold) const {
  const size_t bytes = RuleBytes(call.first());  // which its other prompts share
  if (bytes <= kUncountedBytes) return absl::OkStatus();
  *hold = std::make_unique<HeldBytes>(held_, call.first().tenant);
  return HoldBytes(bytes, hold->get());
}

void Service::LogIgnoredFields(const GenerationCall& call) {
  for (const std::string& name : call.ignored_fields) {
    const std::string shown(FieldForLogs(name));
    bool last = false;
    {
      MutexLock lock(mutex_);
      if (logged_fields_.size() >= kMaxLoggedFields) return;
      if (!logged_fields_.insert(shown).second) continue;
      last = logged_fields_.size() == kMaxLoggedFields;
    }
    log_->Info("a request field is unknown and ignored; not logged again", {{"field", shown}});
    if (last) {
      log_->Warn("so many unknown request fields have been seen that no more are logged",
                 {{"fields", static_cast<int64_t>(kMaxLoggedFields)}});
    }
  }
}

std::unique_ptr<http::Reply> Service::Models() const {
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return MakeErrorReply(engine.status());
  return JsonReply(
      Concat("{\"object\":\"list\",\"data\":[", ModelObject((*engine)->model()), "]}"));
}

std::unique_ptr<http::Reply> Service::Model(std::string_view id) const {
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return MakeErrorReply(engine.status());
  const engine::ModelInfo& model = (*engine)->model();
  if (id != model.served_name) {
    return MakeErrorReply(UnknownModel(id, model.served_name));
  }
  return JsonReply(ModelObject(model));
}

std::unique_ptr<http::Reply> Service::Health() const {
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return MakeErrorReply(engine.status());
  if (const absl::Status health = (*engine)->health(); !health.ok()) {
    // What one died of is for the log.
    return MakeErrorReply(
        absl::IsUnavailable(health) ? health : absl::UnavailableError("the engine has stopped"));
  }
  if (!grpc_answers_) {
    return MakeErrorReply(absl::UnavailableError("gRPC calls are not answered any more"));
  }
  return JsonReply("{\"status\":\"ok\"}");
}

std::unique_ptr<http::Reply> Service::Ready() const {
  if (draining_) return MakeErrorReply(absl::UnavailableError("the server is shutting down"));
  return Health();
}

std::unique_ptr<http::Reply> Service::Version() const {
  std::string body = "{\"version\":";
  AppendJsonString(options_.version, &body);
  body += "}";
  return JsonReply(std::move(body));
}

std::unique_ptr<http::Reply> Service::OpenApi() const {
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return MakeErrorReply(engine.status());
  std::vector<ServedRoute> routes;
  for (const http::Router::Route& route : router_->routes()) {
    const std::optional<access::Area> area = access::AreaOf(route.path);
    const bool asks_key = area.has_value() && options_.gate != nullptr &&
                          !options_.gate->Authenticate(*area, "").ok();
    routes.push_back({.method = route.method, .path = route.path, .asks_key = asks_key});
  }
  return JsonReply(OpenApiDocument(LimitsOf(**engine), options_.version, routes));
}

std::unique_ptr<http::Reply> Service::Tokenize(const http::Request& request) const {
  NoteBody(request);
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return RefuseCall(request, engine.status());
  const engine::Tokenizer& tokenizer = (*engine)->tokenizer();
  const absl::StatusOr<std::optional<double>> timeout_s = TimeoutOf(request);
  if (!timeout_s.ok()) return RefuseCall(request, timeout_s.status());
  access::Principal principal;
  access::Ticket ticket;
  // Before the call is understood: rendering a conversation is work.
  if (absl::Status status = Admit(request, &principal, &ticket); !status.ok()) {
    return RefuseCall(request, status);
  }
  absl::StatusOr<TokenizeCall> call =
      ParseTokenizeCall(request.body, LimitsOf(**engine), (*engine)->chat_template());
  if (!call.ok()) return RefuseCall(request, call.status());
  // A rendered conversation may be many times as long as the body, which counts already.
  const size_t text_bytes = call->text.text.size();
  const absl::StatusOr<std::shared_ptr<const void>> hold =
      HoldWithBody(request.body_hold, text_bytes - std::min(text_bytes, request.body.size()),
                   principal.key_name);
  if (!hold.ok()) return RefuseCall(request, hold.status());
  auto stream =
      (*engine)->Tokenize(std::move(call->text), principal.key_name, *timeout_s, request.arrived);
  if (!stream.ok()) return RefuseCall(request, stream.status());
  return std::make_unique<TokenizeReply>(
      TokenizeReply::Parts{.stream = *std::move(stream),
                           .max_context_tokens = (*engine)->model().max_context_tokens,
                           .ticket = std::move(ticket),
                           .text_hold = *hold,
                           .held = std::make_unique<HeldBytes>(held_, principal.key_name),
                           .strings = call->token_strings ? &tokenizer : nullptr,
                           .notes = request.notes});
}

std::unique_ptr<http::Reply> Service::TokenizerInfo() const {
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return MakeErrorReply(engine.status());
  return JsonReply(TokenizerInfoObject((*engine)->model()));
}

std::unique_ptr<http::Reply> Service::Detokenize(const http::Request& request) const {
  NoteBody(request);
  const absl::StatusOr<engine::Engine*> engine = LoadedEngine();
  if (!engine.ok()) return RefuseCall(request, engine.status());
  const absl::StatusOr<Json> body = ParseJson(request.body);
  if (!body.ok()) return RefuseCall(request, body.status());
  if (absl::Status status = CheckIsObject(*body); !status.ok()) return RefuseCall(request, status);
  FieldReader fields(*body, "");
  ReadModel(fields, LimitsOf(**engine));
  const Json* tokens = fields.ArrayOrNull("tokens");
  std::vector<engine::TokenId> ids;
  if (tokens == nullptr) {
    fields.Refuse("tokens", "is required");
  } else if (tokens->size() > kMaxDetokenizedIds) {
    fields.Refuse("tokens", Concat("has ", tokens->size(), " ids; at most ", kMaxDetokenizedIds,
                                   " are accepted"));
  } else {
    ids = ReadTokenIds(fields, "tokens", *tokens, LimitsOf(**engine));
  }
  if (!fields.status().ok()) return RefuseCall(request, fields.status());
  access::Principal principal;
  access::Ticket ticket;
  if (absl::Status status = Admit(request, &principal, &ticket); !status.ok()) {
    return RefuseCall(request, status);
  }
  auto held = std::make_unique<HeldBytes>(held_, principal.key_name);
  const absl::StatusOr<std::string> text =
      server::Detokenize((*engine)->tokenizer(), ids, held.get());
  if (!text.ok()) return RefuseCall(request, text.status());
  auto reply = DetokenizeReply::Make(*text, std::move(ticket), std::move(held));
  if (!reply.ok()) return RefuseCall(request, reply.status());
  return *std::move(reply);
}

}  // namespace refrain::server::openai
