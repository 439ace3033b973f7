#include "tests/support/fake_engine.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/chat_prompt.h"
#include "engine/context_length.h"
#include "engine/retry_after.h"

namespace refrain::testing {
namespace {

using engine::TokenEvent;
using kvcache::TokenId;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kThrow = "[[throw]]";

std::string PromptText(const engine::Request& request, const ByteTokenizer& tokenizer) {
  if (const auto* text = std::get_if<engine::TextPrompt>(&request.prompt)) return text->text;
  if (const auto* tokens = std::get_if<engine::TokenPrompt>(&request.prompt)) {
    std::string text;
    for (const TokenId id : tokens->ids) text += tokenizer.TokenBytes(id);
    return text;
  }
  const auto& chat = std::get<engine::ChatPrompt>(request.prompt);
  const auto& messages = chat.input.messages.AsList();
  return messages.back().AsMap().FindOrNull("content")->AsString();
}

// With control tokens where a text may spell them.
std::vector<TokenId> IdsOf(const engine::TextPrompt& text, const ByteTokenizer& tokenizer) {
  std::vector<TokenId> ids;
  size_t at = 0;
  const auto add_until = [&](size_t end) {
    const std::vector<TokenId> bytes = *tokenizer.Encode(text.text.substr(at, end - at), {});
    ids.insert(ids.end(), bytes.begin(), bytes.end());
  };
  for (const engine::ControlToken& control :
       tokenizer.FindControlTokens(text.text, {.plain_spans = text.plain_spans})) {
    add_until(control.span.begin_byte);
    ids.push_back(control.id);
    at = control.span.end_byte;
  }
  add_until(text.text.size());
  return ids;
}

// Cuts "[[name=value]]" off the front of `text`.
bool TakeDirective(std::string* text, std::string* name, std::string* value) {
  if (!text->starts_with("[[")) return false;
  const size_t end = text->find("]]");
  if (end == std::string::npos) return false;
  *name = text->substr(2, end - 2);
  value->clear();
  if (const size_t equals = name->find('='); equals != std::string::npos) {
    *value = name->substr(equals + 1);
    name->resize(equals);
  }
  text->erase(0, end + 2);
  return true;
}

absl::Status StatusOf(const std::string& code, std::optional<int> come_back_s,
                      const engine::Request& request) {
  const std::string field = request.format == nullptr ? "" : request.format->field + ": ";
  absl::Status status(static_cast<absl::StatusCode>(std::atoi(code.c_str())),
                      field + "as the prompt asked");
  return come_back_s.has_value() ? engine::WithRetryAfter(std::move(status), *come_back_s) : status;
}

void AddLogprobs(int32_t top, TokenEvent* event) {
  event->logprob = engine::TokenLogprob{event->token, -0.5f, 1};
  for (int32_t i = 0; i < top; ++i) {
    const auto id = static_cast<int32_t>((static_cast<size_t>(event->token) + i) % 256);
    event->top.push_back({TokenId{id}, -0.5f - static_cast<float>(i), i + 1});
  }
}

}  // namespace

FakeEngine::FakeEngine(FakeEngineOptions options) : options_(std::move(options)) {
  model_.served_name = options_.served_name;
  model_.description = "repeats its prompt";
  model_.max_context_tokens = options_.max_context_tokens;
  model_.vocab_size = static_cast<int32_t>(tokenizer_.vocab_size());
  model_.created_unix_s = 1'700'000'000;
  if (!options_.chat_template.empty()) {
    chat_template_ = *engine::ChatTemplate::Create(options_.chat_template, "", "");
  }
  thread_ = std::thread([this] { Loop(); });
}

FakeEngine::~FakeEngine() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  std::this_thread::sleep_for(options_.end_delay);
}

absl::StatusOr<std::shared_ptr<engine::TokenStream>> FakeEngine::Submit(engine::Request request) {
  std::string answer = PromptText(request, tokenizer_);
  if (answer.starts_with(kThrow)) throw std::bad_alloc();
  const auto* const ids = std::get_if<engine::TokenPrompt>(&request.prompt);
  std::vector<TokenId> prompt = ids != nullptr ? ids->ids : *tokenizer_.Encode(answer, {});
  const auto& kept = request.keep_prompt_tokens;
  if (kept.has_value() && prompt.size() > static_cast<size_t>(*kept)) {
    prompt.erase(prompt.begin(), prompt.end() - *kept);
  }
  Running running;
  running.delay = options_.token_delay;
  std::optional<int> come_back_s;
  std::string name, value;
  while (TakeDirective(&answer, &name, &value)) {
    if (name == "come_back_s") come_back_s = std::atoi(value.c_str());
    if (name == "reject") return StatusOf(value, come_back_s, request);
    if (name == "late") running.late = StatusOf(value, come_back_s, request);
    if (name == "delay_ms") running.delay = std::chrono::milliseconds(std::atoi(value.c_str()));
    if (name == "hold") running.hold = true;
    if (name == "stall") running.hold = running.stalls = true;
    if (name == "unencoded") {
      running.hold = true;
      running.prompt_hold = request.prompt_hold;
    }
    if (name == "fail_after") running.fail_after = std::atoll(value.c_str());
  }
  if (!options_.says.empty()) answer = options_.says;
  running.stream = std::make_shared<engine::TokenStream>();
  if (const auto* chat = std::get_if<engine::ChatPrompt>(&request.prompt);
      chat != nullptr && chat_template_ != nullptr) {
    const auto rendered = engine::RenderChatPrompt(*chat_template_, *chat);
    if (rendered.ok()) running.stream->SetReasoningStart(rendered->reasoning);
  }
  running.next_token = Clock::now() + running.delay;
  if (static_cast<int32_t>(prompt.size()) >= options_.max_context_tokens) {
    running.late =
        engine::ContextLengthError(std::to_string(prompt.size()), options_.max_context_tokens);
  }
  Plan(request, answer, prompt, &running);

  MutexLock lock(mutex_);
  if (!health_.ok()) return absl::UnavailableError("the engine has stopped");
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (static_cast<int32_t>(running_.size()) >= options_.queued_requests) {
    return absl::ResourceExhaustedError("too many requests are waiting");
  }
  running.usage.prompt_tokens = static_cast<int32_t>(prompt.size());
  const bool is_cached = !seen_.insert(prompt).second && !prompt.empty();
  if (is_cached) running.usage.cached_tokens = running.usage.prompt_tokens - 1;
  if (!is_cached) running.usage.miss = engine::CacheMiss{};
  request.prompt_hold.reset();
  running.usage.computed_tokens = running.usage.prompt_tokens - running.usage.cached_tokens;
  running.usage.written_tokens = running.usage.computed_tokens;
  last_request_ = std::move(request);
  ++submitted_;
  auto handle = engine::ConsumerHandle(running.stream);
  running.stream->SetOnCancel([this] {
    looks_again_ = true;
    if (std::this_thread::get_id() == thread_.get_id()) return;  // it was cut, inside of a Push
    MutexLock lock(mutex_);
    changed_.NotifyAll();
  });
  running_.push_back(std::move(running));
  changed_.NotifyAll();
  return handle;
}

absl::StatusOr<std::shared_ptr<engine::TokenStream>> FakeEngine::Tokenize(
    engine::TextPrompt text, std::string, std::optional<double> timeout_s,
    std::optional<engine::Clock::TimePoint>) {
  if (!health().ok()) return absl::UnavailableError("the engine has stopped");
  if (text.text.starts_with(kThrow)) throw std::bad_alloc();
  auto stream = std::make_shared<engine::TokenStream>();
  {
    MutexLock lock(mutex_);
    ++tokenized_;
  }
  if (text.text.starts_with("[[unencoded]]")) return engine::ConsumerHandle(std::move(stream));
  engine::StreamBatch batch;
  if (timeout_s.value_or(1) <= 1e-3) {
    batch.status = absl::DeadlineExceededError("out of time");
  } else {
    batch.text_ids = IdsOf(text, tokenizer_);
  }
  batch.finished = true;
  stream->Push(std::move(batch));
  return engine::ConsumerHandle(std::move(stream));
}

void FakeEngine::Plan(const engine::Request& request, const std::string& answer,
                      const std::vector<TokenId>& prompt, Running* running) const {
  const auto& top = request.logprobs.top;
  const bool with_logprobs = request.logprobs.prompt_top.has_value();
  if (request.echo || request.tell_prompt || with_logprobs) {
    for (size_t i = 0; i < prompt.size(); ++i) {
      TokenEvent event;
      event.token = prompt[i];
      event.from_prompt = true;
      if (with_logprobs && i > 0) AddLogprobs(*request.logprobs.prompt_top, &event);
      const int32_t copies = request.echo ? request.n : 1;
      for (event.choice = 0; event.choice < copies; ++event.choice) {
        running->prompt_events.push_back(event);
      }
    }
    if (request.tell_prompt) running->prompt_ids = prompt;
    if (with_logprobs && prompt.size() > 1) {
      running->first_prompt_events = request.echo ? request.n : 1;
    }
  }
  const int64_t room = options_.max_context_tokens - static_cast<int64_t>(prompt.size());
  const auto limit = static_cast<size_t>(std::clamp<int64_t>(room, 0, request.stop.max_tokens));
  for (int32_t i = 0; i < request.n; ++i) {
    const std::string said = i == 0 ? answer : answer + " #" + std::to_string(i);
    std::string text = said;
    while (request.stop.ignore_eos && !said.empty() && text.size() < limit) text += said;
    Choice& choice = running->choices.emplace_back();
    choice.end.choice = i;
    choice.end.reason = engine::FinishReason::kStop;
    choice.end.stop_token = ByteTokenizer::kEos;
    if (text.size() >= limit) {
      if (text.size() > limit || request.stop.ignore_eos || limit == 0) {
        choice.end.reason = engine::FinishReason::kLength;
        choice.end.stop_token.reset();
      }
      text.resize(limit);
    }
    for (size_t at = 0; at < text.size(); ++at) {
      const TokenId token{static_cast<unsigned char>(text[at])};
      const auto& ends = request.stop.stop_token_ids;
      if (std::find(ends.begin(), ends.end(), token) == ends.end()) continue;
      choice.end = {.choice = i};
      choice.end.stop_token = token;
      text.resize(at);
    }
    size_t first_stop = std::string::npos;
    for (const std::string& stop : request.stop.stop) {
      const size_t at = text.find(stop);
      if (at >= first_stop) continue;
      first_stop = at;
      choice.end = {.choice = i, .matched_stop = stop};
    }
    if (first_stop != std::string::npos) {
      const size_t end = first_stop + choice.end.matched_stop->size();
      if (request.stop.include_stop_in_output) first_stop = end;
      for (size_t at = first_stop; at < end; ++at) {
        choice.end.hidden_tokens.push_back(TokenId{static_cast<unsigned char>(text[at])});
      }
      text.resize(first_stop);
    }
    if (choice.end.stop_token.has_value() && top.has_value()) {
      TokenEvent event{.token = *choice.end.stop_token};
      AddLogprobs(*top, &event);
      choice.end.stop_logprob = event.logprob;
      choice.end.stop_top = event.top;
    }
    for (const unsigned char byte : text) {
      TokenEvent& event = choice.tokens.emplace_back();
      event.choice = i;
      event.token = TokenId{byte};
      if (top.has_value()) AddLogprobs(*top, &event);
    }
  }
}

bool FakeEngine::Step(Running* running, Clock::time_point now) {
  if (running->stream->cancelled()) {
    ++cancelled_;
    running->stream->Finish(absl::CancelledError("cancelled by the client"));
    return true;
  }
  if (!health_.ok()) {
    running->stream->Finish(absl::InternalError("the engine has stopped"));
    return true;
  }
  if (running->hold || now < running->next_token) return false;
  running->next_token += running->delay;
  if (!running->late.ok()) {
    running->stream->Finish(running->late);
    return true;
  }
  engine::StreamBatch batch;
  batch.text_ids = std::exchange(running->prompt_ids, {});
  if (running->first_prompt_events > 0) {
    // As the real one: log-probabilities of a prompt come step by step.
    const auto rest = running->prompt_events.begin() + running->first_prompt_events;
    batch.tokens.assign(running->prompt_events.begin(), rest);
    running->prompt_events.erase(running->prompt_events.begin(), rest);
    running->first_prompt_events = 0;
    batch.usage = running->usage;
    running->stream->Push(std::move(batch));
    return false;
  }
  batch.tokens = std::exchange(running->prompt_events, {});
  bool all_ended = true;
  for (Choice& choice : running->choices) {
    if (choice.ended) continue;
    const auto sent = static_cast<int64_t>(choice.sent);
    if (running->fail_after.has_value() && sent >= *running->fail_after) {
      for (const Choice& one : running->choices) {
        if (one.ended) continue;
        batch.ends.push_back({.choice = one.end.choice, .reason = engine::FinishReason::kError});
      }
      batch.status = absl::InternalError("a secret about /internal/paths");
      batch.usage = running->usage;
      batch.finished = true;
      running->stream->Push(std::move(batch));
      return true;
    }
    if (choice.sent < choice.tokens.size()) {
      batch.tokens.push_back(choice.tokens[choice.sent++]);
      ++running->usage.completion_tokens;
      ++running->usage.computed_tokens;
    }
    // As the real one: an end by length comes with the last token, an end token in its own step.
    if (choice.sent == choice.tokens.size() &&
        (!choice.end.stop_token.has_value() || choice.tokens.empty() ||
         sent == static_cast<int64_t>(choice.sent))) {
      choice.ended = true;
      batch.ends.push_back(choice.end);
    }
    all_ended = all_ended && choice.ended;
  }
  if (batch.has_output()) batch.first_sampled = Clock::now();
  batch.usage = running->usage;
  batch.finished = all_ended;
  running->stream->Push(std::move(batch));
  return all_ended;
}

void FakeEngine::Loop() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    auto wake_at = now + std::chrono::hours(1);
    for (auto it = running_.begin(); it != running_.end();) {
      if (Step(&*it, now)) {
        it = running_.erase(it);
        changed_.NotifyAll();
        continue;
      }
      if (!it->hold) wake_at = std::min(wake_at, it->next_token);
      ++it;
    }
    if (!looks_again_.exchange(false)) changed_.WaitUntil(mutex_, wake_at);
  }
  for (Running& running : running_) {
    running.stream->Finish(absl::CancelledError("the engine is stopping"));
  }
  running_.clear();
}

engine::EngineStats FakeEngine::stats() const {
  MutexLock lock(mutex_);
  engine::EngineStats stats = counts_;
  stats.running_sequences = static_cast<int32_t>(running_.size());
  stats.kv_capacity_tokens = options_.max_context_tokens;
  return stats;
}

void FakeEngine::TellUsage() {
  MutexLock lock(mutex_);
  for (const Running& running : running_) {
    engine::StreamBatch batch;
    batch.usage = running.usage;
    running.stream->Push(std::move(batch));
  }
}

void FakeEngine::SetCounts(const engine::EngineStats& counts) {
  MutexLock lock(mutex_);
  counts_ = counts;
}

absl::StatusOr<engine::CacheView> FakeEngine::DescribeCache(const engine::CacheViewLimits& limits) {
  if (on_describe_) on_describe_();
  MutexLock lock(mutex_);
  if (!health_.ok()) return absl::UnavailableError("the engine has stopped");
  engine::CacheView view;
  view.total_nodes = static_cast<int32_t>(seen_.size());
  view.total_namespaces = 1;
  view.namespaces.push_back({.tenant = "\"us\"", .salted = true, .first_chunks = view.total_nodes});
  for (const auto& prompt : seen_) {
    if (static_cast<int32_t>(view.nodes.size()) == limits.max_nodes) break;
    engine::CacheViewNode& node = view.nodes.emplace_back();
    node.id = kvcache::NodeId{static_cast<int32_t>(view.nodes.size())};
    node.chunk = kvcache::ChunkId{7};
    node.num_tokens = static_cast<int32_t>(prompt.size());
  }
  return view;
}

absl::StatusOr<engine::SessionList> FakeEngine::ListSessions(int32_t max_sessions) {
  MutexLock lock(mutex_);
  if (!health_.ok()) return absl::UnavailableError("the engine has stopped");
  engine::SessionList list;
  list.total_sessions = static_cast<int32_t>(seen_.size());
  for (const auto& prompt : seen_) {
    if (static_cast<int32_t>(list.sessions.size()) == max_sessions) break;
    engine::CacheSession& session = list.sessions.emplace_back();
    session.leaf = kvcache::NodeId{static_cast<int32_t>(list.sessions.size())};
    session.tenant = "us";
    session.salted = true;
    session.num_tokens = static_cast<int32_t>(prompt.size());
    session.num_chunks = 3;
    session.own_chunks = 2;
    session.sharers = 1;
    session.hits = 5;
    session.age_requests = 4;
    session.pinned = true;
  }
  return list;
}

absl::StatusOr<engine::PinnedPrefix> FakeEngine::PinPrefix(const engine::Request& prompt) {
  const std::vector<TokenId> ids = *tokenizer_.Encode(PromptText(prompt, tokenizer_), {});
  engine::PinnedPrefix pin;
  {
    MutexLock lock(mutex_);
    if (!health_.ok()) return absl::UnavailableError("the engine has stopped");
    if (!seen_.contains(ids)) return absl::NotFoundError("nothing of the prompt is cached");
    pin.id = engine::PinId{next_pin_++};
    pin.tenant = prompt.tenant;
    pin.salted = !prompt.cache_salt.empty();
    pin.prompt_tokens = static_cast<int32_t>(ids.size());
    pin.pinned_tokens = pin.prompt_tokens;
    pins_.emplace(pin.id, pin);
  }
  if (on_pin_) on_pin_();
  return pin;
}

absl::Status FakeEngine::UnpinPrefix(engine::PinId pin) {
  MutexLock lock(mutex_);
  return pins_.erase(pin) > 0 ? absl::OkStatus() : absl::NotFoundError("there is no such pin");
}

absl::StatusOr<engine::PinList> FakeEngine::PinnedPrefixes() {
  MutexLock lock(mutex_);
  engine::PinList list;
  for (const auto& [id, pin] : pins_) list.pins.push_back(pin);
  list.pinned_chunks = static_cast<int32_t>(pins_.size());
  return list;
}

absl::StatusOr<int32_t> FakeEngine::DropPrefix(const engine::Request& prompt) {
  const std::vector<TokenId> ids = *tokenizer_.Encode(PromptText(prompt, tokenizer_), {});
  MutexLock lock(mutex_);
  return static_cast<int32_t>(seen_.erase(ids));
}

absl::StatusOr<int32_t> FakeEngine::DropIdleCache() {
  MutexLock lock(mutex_);
  const auto dropped = static_cast<int32_t>(seen_.size());
  seen_.clear();
  return dropped;
}

absl::Status FakeEngine::health() const {
  MutexLock lock(mutex_);
  const bool stalls = std::ranges::any_of(running_, &Running::stalls);
  return health_.ok() && stalls ? absl::UnavailableError("the engine hangs, for once") : health_;
}

bool FakeEngine::Drain(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  draining_ = true;
  while (!running_.empty()) {
    if (!changed_.WaitUntil(mutex_, deadline)) return running_.empty();
  }
  return true;
}

void FakeEngine::Abandon() {
  MutexLock lock(mutex_);
  draining_ = true;
  for (Running& running : running_) {
    running.stream->Finish(absl::CancelledError("the engine has stopped"));
  }
  running_.clear();
  changed_.NotifyAll();
}

void FakeEngine::Die(absl::Status reason) {
  MutexLock lock(mutex_);
  health_ = std::move(reason);
  changed_.NotifyAll();
}

int FakeEngine::tokenized() const {
  MutexLock lock(mutex_);
  return tokenized_;
}

int FakeEngine::submitted() const {
  MutexLock lock(mutex_);
  return submitted_;
}

int FakeEngine::cancelled() const {
  MutexLock lock(mutex_);
  return cancelled_;
}

engine::Request FakeEngine::last_request() const {
  MutexLock lock(mutex_);
  return last_request_;
}

bool FakeEngine::WaitForRunning(int count) const {
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  MutexLock lock(mutex_);
  while (static_cast<int>(running_.size()) != count) {
    if (!changed_.WaitUntil(mutex_, deadline)) return false;
  }
  return true;
}

bool FakeEngine::WaitForCancelled(int count) const {
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  MutexLock lock(mutex_);
  while (cancelled_ < count) {
    if (!changed_.WaitUntil(mutex_, deadline)) return false;
  }
  return true;
}

}  // namespace refrain::testing
