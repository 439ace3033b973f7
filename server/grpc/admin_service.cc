#include "server/grpc/admin_service.h"

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/admin.grpc.pb.h"
#include "server/concat.h"
#include "server/grpc/request_reader.h"
#include "server/grpc/stream_end_call.h"
#include "server/grpc/unary_call.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {
namespace {

using ::grpc::ByteBuffer;
using ::grpc::CallbackServerContext;
using ::grpc::ServerUnaryReactor;

constexpr int kThreads = 2;
constexpr Range kNodesRange{0, 100'000};
constexpr Range kDepthRange{1, 1'000'000};

constexpr Range kSessionsRange{0, 100'000};
constexpr int32_t kDefaultSessions = 1000;

absl::Status ReadLimit(const char* field, int32_t value, const Range& range, int32_t* limit) {
  if (!range.Contains(value)) {
    return InvalidField(field, Concat("'", field, "' must be ", range.Text(), ", not ", value));
  }
  *limit = value;
  return absl::OkStatus();
}

absl::StatusOr<engine::CacheViewLimits> ViewLimits(const v1::CacheStatisticsRequest& in) {
  engine::CacheViewLimits limits;
  if (in.has_max_nodes()) {
    const auto status = ReadLimit("max_nodes", in.max_nodes(), kNodesRange, &limits.max_nodes);
    if (!status.ok()) return status;
  }
  if (in.has_max_depth()) {
    const auto status = ReadLimit("max_depth", in.max_depth(), kDepthRange, &limits.max_depth);
    if (!status.ok()) return status;
  }
  return limits;
}

void Write(const engine::CacheView& view, v1::CacheTotals* out) {
  out->set_chunks(view.stats.total_chunks);
  out->set_free_chunks(view.stats.free_chunks);
  out->set_used_chunks(view.stats.used_chunks);
  out->set_cached_chunks(view.stats.cached_chunks);
  out->set_chunk_tokens(view.stats.chunk_tokens);
  out->set_running_sequences(view.stats.sequences);
  out->set_logical_tokens(view.stats.logical_tokens);
  out->set_copied_chunks_total(view.stats.copied_chunks_total);
  out->set_merged_chunks_total(view.stats.merged_chunks_total);
  out->set_evicted_chunks_total(view.stats.evicted_chunks_total);
  out->set_matched_tokens_total(view.stats.matched_tokens_total);
  out->set_nodes(view.total_nodes);
  out->set_namespaces(view.total_namespaces);
}

void Write(const engine::EngineStats& stats, v1::EngineTotals* out) {
  out->set_running_sequences(stats.running_sequences);
  out->set_queued_requests(stats.queued_requests);
  out->set_held_sequences(stats.held_sequences);
  out->set_steps_total(stats.steps_total);
  out->set_preemptions_total(stats.preemptions_total);
  out->set_prompt_tokens_total(stats.prompt_tokens_total);
  out->set_cached_prompt_tokens_total(stats.cached_prompt_tokens_total);
  out->set_computed_prompt_tokens_total(stats.computed_prompt_tokens_total);
  out->set_generated_tokens_total(stats.generated_tokens_total);
}

void Write(const engine::CacheViewNode& node, v1::CacheNode* out) {
  out->set_id(static_cast<int32_t>(node.id));
  if (node.parent.has_value()) out->set_parent(static_cast<int32_t>(*node.parent));
  out->set_namespace_index(node.name_space);
  out->set_chunk(static_cast<int32_t>(node.chunk));
  out->set_depth(node.depth);
  out->set_tokens(node.num_tokens);
  out->set_children(node.num_children);
  out->set_sharers(node.sharers);
  out->set_hits(node.hits);
  out->set_age_requests(node.age_requests);
  out->set_pinned(node.pinned);
  if (node.writer.has_value()) out->set_writer(static_cast<uint64_t>(*node.writer));
}

void Write(const engine::CacheSession& session, v1::Session* out) {
  out->set_id(static_cast<int32_t>(session.leaf));
  out->set_tenant(session.tenant);
  out->set_salted(session.salted);
  out->set_tokens(session.num_tokens);
  out->set_chunks(session.num_chunks);
  out->set_own_chunks(session.own_chunks);
  out->set_sharers(session.sharers);
  out->set_hits(session.hits);
  out->set_age_requests(session.age_requests);
  out->set_pinned(session.pinned);
}

void Write(const engine::PinnedPrefix& pin, v1::Pinned* out) {
  out->set_id(static_cast<uint64_t>(pin.id));
  out->set_prompt_tokens(pin.prompt_tokens);
  out->set_pinned_tokens(pin.pinned_tokens);
  out->set_tenant(pin.tenant);
  out->set_salted(pin.salted);
}

// The engine asks nobody for a key: UNAUTHENTICATED is how it ends what waits of one that was
// removed, and not a word on the operator's.
absl::Status OfRemovedKey(const std::string& tenant, const absl::Status& status) {
  if (!absl::IsUnauthenticated(status)) return status;
  return absl::FailedPreconditionError(
      Concat("the key \"", tenant, "\" was removed while the prompt waited"));
}

template <class Base>
using RawViews = v1::Admin::WithRawCallbackMethod_CacheStatistics<
    v1::Admin::WithRawCallbackMethod_ListSessions<v1::Admin::WithRawCallbackMethod_ListPins<Base>>>;
template <class Base>
using RawChanges = v1::Admin::WithRawCallbackMethod_Warm<v1::Admin::WithRawCallbackMethod_Pin<
    v1::Admin::WithRawCallbackMethod_Unpin<v1::Admin::WithRawCallbackMethod_Drop<Base>>>>;

class AdminService final : public RawViews<RawChanges<v1::Admin::Service>> {
 public:
  explicit AdminService(Reception* reception) : reception_(reception) {}

  ServerUnaryReactor* CacheStatistics(CallbackServerContext* context, const ByteBuffer* request,
                                      ByteBuffer* response) override {
    return Answer<v1::CacheStatisticsRequest, v1::CacheStatisticsResponse>(
        {context, request, response}, "/refrain.v1.Admin/CacheStatistics",
        [](const Caller& caller, const v1::CacheStatisticsRequest& in,
           v1::CacheStatisticsResponse* out) -> absl::Status {
          const auto limits = ViewLimits(in);
          if (!limits.ok()) return limits.status();
          const auto view = caller.engine->DescribeCache(*limits);
          if (!view.ok()) return view.status();
          Write(*view, out->mutable_cache());
          Write(caller.engine->stats(), out->mutable_engine());
          for (const engine::CacheViewNamespace& one : view->namespaces) {
            v1::CacheNamespace* const shown = out->add_namespaces();
            shown->set_tenant(one.tenant);
            shown->set_salted(one.salted);
            shown->set_first_chunks(one.first_chunks);
          }
          for (const engine::CacheViewNode& node : view->nodes) Write(node, out->add_nodes());
          return absl::OkStatus();
        });
  }

  ServerUnaryReactor* ListSessions(CallbackServerContext* context, const ByteBuffer* request,
                                   ByteBuffer* response) override {
    return Answer<v1::ListSessionsRequest, v1::ListSessionsResponse>(
        {context, request, response}, "/refrain.v1.Admin/ListSessions",
        [](const Caller& caller, const v1::ListSessionsRequest& in,
           v1::ListSessionsResponse* out) -> absl::Status {
          int32_t max_sessions = kDefaultSessions;
          if (in.has_max_sessions()) {
            const auto status =
                ReadLimit("max_sessions", in.max_sessions(), kSessionsRange, &max_sessions);
            if (!status.ok()) return status;
          }
          const auto list = caller.engine->ListSessions(max_sessions);
          if (!list.ok()) return list.status();
          out->set_total_sessions(list->total_sessions);
          for (const engine::CacheSession& session : list->sessions)
            Write(session, out->add_sessions());
          return absl::OkStatus();
        });
  }

  ServerUnaryReactor* Warm(CallbackServerContext* context, const ByteBuffer* request,
                           ByteBuffer* response) override {
    const auto in = std::make_shared<v1::WarmRequest>();
    const auto out = std::make_shared<v1::WarmResponse>();
    // Computing takes as long as others leave it; no thread waits for that.
    return AnswerAtStreamEnd(
        {context, {"/refrain.v1.Admin/Warm", request, in}, response, out}, reception_,
        access::Area::kAdmin,
        {.queue = &queue_,
         .submit = [=, this](const Caller& caller, access::Ticket* ticket)
             -> absl::StatusOr<std::shared_ptr<engine::TokenStream>> {
           absl::StatusOr<engine::Request> request = ReadToKeep(in->prompt(), caller);
           if (!request.ok()) return request.status();
           *ticket = reception_->gate().UsageOf(request->tenant);
           request->arrived = caller.arrived;
           auto stream = caller.engine->Submit(*std::move(request));
           if (!stream.ok()) return stream;
           const absl::Status has_key = reception_->gate().StillHas(in->prompt().tenant());
           if (has_key.ok()) return stream;
           (*stream)->Cancel();
           return OfRemovedKey(in->prompt().tenant(), has_key);
         },
         .answer = [=, this](const Caller& caller,
                             const engine::StreamBatch& last) -> absl::Status {
           out->set_prompt_tokens(last.usage.prompt_tokens);
           out->set_cached_tokens(last.usage.cached_tokens);
           if (!in->pin()) return absl::OkStatus();
           const absl::StatusOr<engine::Request> request = ReadToKeep(in->prompt(), caller);
           if (!request.ok()) return request.status();
           return Pin(*request, caller, *context, out->mutable_pin());
         },
         .failure =
             [=](const absl::Status& status) {
               return OfRemovedKey(in->prompt().tenant(), status);
             }});
  }

  ServerUnaryReactor* Pin(CallbackServerContext* context, const ByteBuffer* request,
                          ByteBuffer* response) override {
    return Answer<v1::PinRequest, v1::PinResponse>(
        {context, request, response}, "/refrain.v1.Admin/Pin",
        [this, context](const Caller& caller, const v1::PinRequest& in,
                        v1::PinResponse* out) -> absl::Status {
          const absl::StatusOr<engine::Request> request = ReadToKeep(in.prompt(), caller);
          if (!request.ok()) return request.status();
          return Pin(*request, caller, *context, out->mutable_pin());
        });
  }

  ServerUnaryReactor* Unpin(CallbackServerContext* context, const ByteBuffer* request,
                            ByteBuffer* response) override {
    return Answer<v1::UnpinRequest, v1::UnpinResponse>(
        {context, request, response}, "/refrain.v1.Admin/Unpin",
        [](const Caller& caller, const v1::UnpinRequest& in, v1::UnpinResponse*) {
          return caller.engine->UnpinPrefix(engine::PinId{in.id()});
        });
  }

  ServerUnaryReactor* ListPins(CallbackServerContext* context, const ByteBuffer* request,
                               ByteBuffer* response) override {
    return Answer<v1::ListPinsRequest, v1::ListPinsResponse>(
        {context, request, response}, "/refrain.v1.Admin/ListPins",
        [](const Caller& caller, const v1::ListPinsRequest&,
           v1::ListPinsResponse* out) -> absl::Status {
          const absl::StatusOr<engine::PinList> list = caller.engine->PinnedPrefixes();
          if (!list.ok()) return list.status();
          out->set_pinned_chunks(list->pinned_chunks);
          for (const engine::PinnedPrefix& pin : list->pins) Write(pin, out->add_pins());
          return absl::OkStatus();
        });
  }

  ServerUnaryReactor* Drop(CallbackServerContext* context, const ByteBuffer* request,
                           ByteBuffer* response) override {
    return Answer<v1::DropRequest, v1::DropResponse>(
        {context, request, response}, "/refrain.v1.Admin/Drop",
        [this](const Caller& caller, const v1::DropRequest& in,
               v1::DropResponse* out) -> absl::Status {
          absl::StatusOr<int32_t> dropped = 0;
          if (in.has_prompt()) {
            const absl::StatusOr<engine::Request> request = Read(in.prompt(), caller);
            if (!request.ok()) return request.status();
            dropped = caller.engine->DropPrefix(*request);
          } else if (in.everything()) {
            dropped = caller.engine->DropIdleCache();
          } else {
            return InvalidField("what", "'what' is required: a prompt, or everything = true");
          }
          if (!dropped.ok()) return dropped.status();
          out->set_dropped_chunks(*dropped);
          return absl::OkStatus();
        });
  }

 private:
  template <class Request, class Response>
  ServerUnaryReactor* Answer(
      const RawUnary& raw, std::string_view path,
      std::function<absl::Status(const Caller&, const Request&, Response*)> work) {
    return AnswerOnQueue<Request, Response>(raw, path, reception_, access::Area::kAdmin, &queue_,
                                            std::move(work));
  }

  absl::StatusOr<engine::Request> Read(const v1::CachedPrompt& in, const Caller& caller) const {
    absl::StatusOr<engine::Request> request =
        ReadCachedPrompt(in, reception_->LimitsOf(*caller.engine));
    if (request.ok()) request->id = caller.request_id;
    return request;
  }

  // What is computed for a key is charged to its share, with its weight. A cache that no request
  // can reach would fill the pool for nothing, and the engine remembers every name.
  absl::StatusOr<engine::Request> ReadToKeep(const v1::CachedPrompt& in,
                                             const Caller& caller) const {
    const std::optional<double> weight = reception_->gate().WeightOf(in.tenant());
    const bool isolates_keys = reception_->options().isolates_keys;
    constexpr size_t kShownBytes = 200;
    if (!weight.has_value() && (isolates_keys || !in.tenant().empty())) {
      return WithParam(absl::InvalidArgumentError(Concat(
                           "'tenant' is \"", std::string_view(in.tenant()).substr(0, kShownBytes),
                           "\", which is the name of no key",
                           isolates_keys ? "; kv_cache.isolation is \"api_key\"" : "")),
                       "prompt.tenant");
    }
    absl::StatusOr<engine::Request> request = Read(in, caller);
    if (request.ok()) request->tenant_weight = weight.value_or(request->tenant_weight);
    return request;
  }

  static absl::Status Pin(const engine::Request& request, const Caller& caller,
                          const CallbackServerContext& context, v1::Pinned* out) {
    const absl::StatusOr<engine::PinnedPrefix> pin = caller.engine->PinPrefix(request);
    if (!pin.ok()) return pin.status();
    // That was between two steps of the engine, maybe seconds later. Who has gone meanwhile does
    // not learn the id, and would never unpin it.
    if (context.IsCancelled()) {
      const absl::Status unpinned = caller.engine->UnpinPrefix(pin->id);
      return unpinned.ok() ? absl::CancelledError("the call was cancelled") : unpinned;
    }
    Write(*pin, out);
    return absl::OkStatus();
  }

  Reception* const reception_;
  TaskQueue queue_{kThreads, TaskQueue::Tasks::kLong};
};

}  // namespace

std::unique_ptr<::grpc::Service> MakeAdminService(Reception* reception) {
  return std::make_unique<AdminService>(reception);
}

}  // namespace refrain::server::rpc
