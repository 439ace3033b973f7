#include "server/openai/generation_reply.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "server/concat.h"
#include "server/error_reply.h"
#include "server/form_error.h"
#include "server/generation_note.h"
#include "server/hold_bytes.h"
#include "server/openai/kept_bytes.h"
#include "server/openai/make_answer_format.h"

namespace refrain::server::openai {
namespace {

// About so much is written in one go, in some 200 us. What is more than that goes out in parts or,
// where it has to be whole, is made on a worker thread.
constexpr size_t kPartBytes = 64 << 10;
constexpr size_t kPromptIdBytes = 6;
constexpr size_t kQuickPromptIdsBytes = 4096 * kPromptIdBytes;
constexpr size_t kMostWholeBytes = size_t{512} << 20;
// Of an item of a response: told three more times by the thread that serves its connection.
constexpr size_t kQuickItemBytes = 256 * 1024;

http::ResponseHead EventStreamHead() {
  http::ResponseHead head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  return head;
}

// The field that a refusal of the engine begins with: not the prompt by itself is too long, but
// with what this asks for. Empty where it is the prompt.
std::string_view FieldThatIsTooMuch(std::string_view message) {
  for (const std::string_view field : {"best_of", "n", "echo"}) {
    if (message.starts_with(field) && message.substr(field.size()).starts_with(": ")) return field;
  }
  return {};
}

}  // namespace

bool GenerationReply::KeepsWhole(const GenerationCall& call) { return WholeCopies(call) > 0; }

GenerationReply::GenerationReply(const GenerationCall& call, Parts parts)
    : endpoint_(call.endpoint),
      stream_events_(call.stream),
      whole_copies_(WholeCopies(call)),
      repeated_bytes_(RepeatedBytes(call)),
      continuous_usage_(call.continuous_usage),
      choices_per_prompt_(call.first().n),
      request_id_(parts.request_id),
      log_(parts.log),
      format_(MakeAnswerFormat(call, {.request_id = parts.request_id,
                                      .model = parts.model,
                                      .created_unix_s = parts.created_unix_s,
                                      .prompts = parts.streams.size(),
                                      .tokenizer = parts.tokenizer})),
      output_(call.output),
      form_(call.first().format),
      prompt_tokens_(parts.streams.size()),
      ticket_(std::move(parts.ticket)),
      held_(std::move(parts.held)),
      rules_hold_(std::move(parts.rules_hold)),
      disposal_(std::move(parts.disposal)),
      notes_(std::move(parts.notes)) {
  const ChoiceText::Options options{
      .wants_tokens = output_.logprobs.has_value() || output_.token_ids,
      .shows_end_token = call.first().stop.include_stop_in_output,
      .prefix = output_.prefix,
      .shown = {.skip_special = output_.skip_special,
                .tools = output_.tools,
                .parallel_tool_calls = output_.parallel_tool_calls,
                // Of a call that is cut a response has an item either way.
                .stream_tool_calls = stream_events_ || endpoint_ == Endpoint::kResponses,
                .reasoning = output_.reasoning,
                .include_reasoning = output_.include_reasoning}};
  for (auto& stream : parts.streams) {
    const bool shows_ids = stream_events_ && output_.token_ids;
    prompts_.push_back(
        {.stream = std::move(stream),
         .may_think = output_.reasoning != engine::ReasoningFormat::kNone,
         .to_begin = shows_ids ? static_cast<size_t>(choices_per_prompt_) : size_t{0}});
    for (int32_t i = 0; i < choices_per_prompt_; ++i) {
      texts_.emplace_back(parts.tokenizer, options);
    }
  }
  begins_.resize(texts_.size());
  whole_bytes_ = output_.prefix.size() * texts_.size();
}

GenerationReply::~GenerationReply() {
  for (PromptState& prompt : prompts_) prompt.stream->SetWakeup(nullptr);
  // Its client was not told where it did not read on.
  if (cut_.has_value() && error_code_.empty()) NoteFailure(*cut_, ApiErrorFromStatus(*cut_));
  CancelUnfinished();
  for (PromptState& prompt : prompts_) {
    Dispose(std::move(prompt.batch.tokens));
    if (prompt.finished) continue;
    // A stream without tokens has woken nobody; who goes away pays for what was computed.
    engine::StreamBatch rest = prompt.stream->Read();
    prompt.usage = rest.usage;
    Dispose(std::move(rest.tokens));
  }
  if (EndBytes() > kPartBytes && disposal_ != nullptr) {
    disposal_->Take(std::move(format_));
    disposal_->Take(std::move(prompt_tokens_));
  }
  ticket_.ChargeUsage(TotalUsage());
  if (notes_ != nullptr) NoteOutcome();
}

void GenerationReply::NoteOutcome() {
  AppendOutcome({.stream = stream_events_,
                 .choices = texts_.size(),
                 .usage = TotalUsage(),
                 .first_token_ms = first_token_ms_,
                 .error = error_code_},
                &notes_->details);
}

void GenerationReply::CancelUnfinished() {
  for (PromptState& prompt : prompts_) {
    if (!prompt.finished) prompt.stream->Cancel();
  }
}

void GenerationReply::Start(std::function<void()> wakeup) {
  for (PromptState& prompt : prompts_) prompt.stream->SetWakeup(wakeup);
}

void GenerationReply::DropIfCut() {
  if (cut_.has_value()) return;
  for (const PromptState& prompt : prompts_) {
    if (prompt.stream->cut()) cut_ = prompt.stream->Read().status;
  }
  if (!cut_.has_value()) return;
  CancelUnfinished();
  for (PromptState& prompt : prompts_) {
    // One of several prompts that are cut one after the other may still have all of its tokens.
    engine::StreamBatch rest = prompt.stream->Read();
    prompt.usage = rest.usage;
    Dispose(std::move(rest.tokens));
    Dispose(std::move(prompt.batch.tokens));
    prompt.batch = {};
    prompt.next = 0;
  }
  const size_t prompts = prompt_tokens_.size();
  if (disposal_ != nullptr) disposal_->Take(std::move(prompt_tokens_));
  prompt_tokens_ = std::vector<PromptTokens>(prompts);
}

void GenerationReply::Dispose(std::vector<engine::TokenEvent> tokens) const {
  if (disposal_ != nullptr) disposal_->TakeTokens(std::move(tokens));
}

// So that it waits neither for a client that reads the last of it slowly nor for other prompts.
void GenerationReply::FreeIfTaken(PromptState* prompt) {
  constexpr size_t kFewTokens = 64;  // they go with the next batch, if there is one
  const size_t tokens = prompt->batch.tokens.size();
  const bool has_ids = !prompt->batch.text_ids.empty();
  if (!prompt->taken() || (tokens == 0 && !has_ids)) return;
  if (tokens <= kFewTokens && !has_ids && !prompt->finished) return;
  Dispose(std::exchange(prompt->batch.tokens, {}));
  prompt->batch.text_ids = std::vector<engine::TokenId>();
  prompt->next = 0;
  prompt->stream->Release();
}

http::ReplyPart GenerationReply::Next() {
  for (;;) {
    DropIfCut();
    if (cut_.has_value()) return FailedPart(*cut_);
    // Streams whose last batch is not taken are not read: what is in them has woken nobody, and an
    // empty part would say that there is nothing.
    const bool reads_all = AllTaken();
    const std::optional<size_t> failed = ReadStreams();
    ticket_.ChargeUsage(TotalUsage());
    if (failed.has_value()) return FailedPart(*failed);
    if (absl::Status status = HoldWhole(); !status.ok()) return FailedPart(status);
    http::ReplyPart part;
    if (IsLarge()) {
      part.make = [this] { return stream_events_ ? MakeEvents() : MakeWhole(); };
      return part;
    }
    part = stream_events_ ? MakeEvents() : MakeWhole();
    if (reads_all || part.last || !part.body.empty()) return part;
  }
}

http::ReplyPart GenerationReply::Ping() {
  http::ReplyPart part;
  if (!stream_events_) return part;
  part.body = AnswerFormat::PingComment();
  if (!std::exchange(head_sent_, true)) part.head = EventStreamHead();
  return part;
}

std::optional<size_t> GenerationReply::ReadStreams() {
  for (size_t i = 0; i < prompts_.size(); ++i) {
    PromptState& prompt = prompts_[i];
    if (!prompt.taken()) prompt.stream->NoteReading();  // one part of it is sent
    if (prompt.finished || !prompt.taken()) continue;
    prompt.batch = prompt.stream->Read();
    prompt.next = 0;
    prompt.finished = prompt.batch.finished;
    prompt.usage = prompt.batch.usage;
    if (prompt.may_think) StartChoices(i);
    if (!first_token_ms_.has_value() && prompt.batch.has_generated()) {
      const std::chrono::duration<double, std::milli> passed =
          std::chrono::steady_clock::now() - begin_;
      first_token_ms_ = passed.count();
    }
    if (!head_sent_ && !prompt.batch.status.ok()) return i;
    if (prompt.to_begin == 0) continue;
    FindBeginning(i);
    // A choice's first event shows all of them, also where their log-probabilities are to come.
    if (prompt.batch.text_ids.empty()) continue;
    prompt_tokens_[i].ids = prompt.batch.text_ids;
    prompt.stream->CountKept(prompt_tokens_[i].ids.size() * sizeof(engine::TokenId));
  }
  if (output_.cache_report) ReportMisses();
  return std::nullopt;
}

// With the first tokens: before, the prompt may not have been rendered.
void GenerationReply::StartChoices(size_t prompt) {
  PromptState& state = prompts_[prompt];
  if (state.taken()) return;
  state.may_think = false;
  const size_t base = prompt * static_cast<size_t>(choices_per_prompt_);
  for (size_t i = base; i < base + choices_per_prompt_; ++i) {
    texts_[i].SetReasoningStart(state.batch.reasoning);
  }
}

absl::Status GenerationReply::HoldWhole() {
  const size_t end_bytes = EndBytes();
  const size_t one_copy = repeated_bytes_ + std::min<size_t>(1, whole_copies_) * whole_bytes_;
  // The next token may close a long item.
  const size_t bytes = AllFinished() || whole_bytes_ > kQuickItemBytes ? end_bytes : one_copy;
  if (bytes <= kUncountedBytes) return absl::OkStatus();
  const size_t most =
      held_ == nullptr ? kMostWholeBytes : std::min(kMostWholeBytes, held_->budget().bytes());
  if (end_bytes > most) {
    return absl::InvalidArgumentError(Concat("the answer would have ", end_bytes,
                                             " bytes or more, at most ", most,
                                             " are sent as a whole: ", WhatToAskFor()));
  }
  if (held_ == nullptr) return absl::OkStatus();
  // In steps: it grows with every token.
  return HoldBytes(std::min(most, (bytes / kPartBytes + 1) * kPartBytes), held_.get());
}

bool GenerationReply::IsLarge() const {
  if (stream_events_) return BeginsWithManyIds() || RepeatsMuch();
  size_t bytes = AllFinished() ? EndBytes() : 0;
  for (size_t p = 0; p < prompts_.size(); ++p) {
    const PromptState& prompt = prompts_[p];
    for (size_t i = prompt.next; i < prompt.batch.tokens.size() && bytes <= kPartBytes; ++i) {
      const engine::TokenEvent& event = prompt.batch.tokens[i];
      bytes += OutputBytes(event);
      if (!event.from_prompt && !TextOf(p, event).begun()) bytes += output_.prefix.size();
    }
  }
  return bytes > kPartBytes;
}

std::string_view GenerationReply::WhatToAskFor() const {
  if (endpoint_ == Endpoint::kResponses) {
    return repeated_bytes_ > whole_copies_ * whole_bytes_
               ? "send shorter 'instructions' and 'tools', which it repeats"
               : "ask for fewer tokens or log-probabilities";
  }
  return stream_events_ ? "ask for fewer choices, prompts or log-probabilities"
                        : "ask for fewer choices, prompts or log-probabilities, or for a stream";
}

bool GenerationReply::RepeatsMuch() const {
  if (EndBytes() <= kPartBytes) return false;
  if (AllFinished()) return true;
  // Where nothing is at hand nothing is made: a worker that makes nothing is asked again at once.
  return !AllTaken() && (!texts_.front().begun() || whole_bytes_ > kQuickItemBytes);
}

size_t GenerationReply::EndBytes() const { return repeated_bytes_ + whole_copies_ * whole_bytes_; }

// Each choice that begins shows all ids of its prompt.
bool GenerationReply::BeginsWithManyIds() const {
  size_t bytes = 0;
  for (size_t p = 0; p < prompts_.size() && bytes <= kQuickPromptIdsBytes; ++p) {
    const PromptState& prompt = prompts_[p];
    bytes += prompt.beginning * kPromptIdBytes * prompt_tokens_[p].ids.size();
  }
  return bytes > kQuickPromptIdsBytes;
}

// Once for each batch, of which hundreds of thousands of tokens may go out in many parts.
void GenerationReply::FindBeginning(size_t prompt) {
  PromptState& state = prompts_[prompt];
  const size_t base = prompt * static_cast<size_t>(choices_per_prompt_);
  state.beginning = 0;
  for (size_t i = base; i < base + choices_per_prompt_; ++i) begins_[i] = false;
  for (const engine::TokenEvent& event : state.batch.tokens) {
    if (state.beginning == state.to_begin) return;
    const size_t text = base + event.choice;
    if (begins_[text] || texts_[text].begun() || (event.from_prompt && !output_.echo)) continue;
    begins_[text] = true;
    ++state.beginning;
  }
  for (const engine::ChoiceEnd& end : state.batch.ends) {  // of choices without a token, too
    const size_t text = base + end.choice;
    if (begins_[text] || texts_[text].begun()) continue;
    begins_[text] = true;
    ++state.beginning;
  }
}

void GenerationReply::NoteBegun(size_t prompt) {
  PromptState& state = prompts_[prompt];
  if (state.to_begin == 0) return;
  const size_t base = prompt * static_cast<size_t>(choices_per_prompt_);
  state.to_begin = state.beginning = 0;
  for (size_t i = base; i < base + choices_per_prompt_; ++i) {
    if (texts_[i].begun()) continue;
    ++state.to_begin;
    if (begins_[i]) ++state.beginning;
  }
  std::vector<engine::TokenId>& ids = prompt_tokens_[prompt].ids;
  if (state.to_begin > 0 || ids.empty()) return;
  state.stream->UncountKept(ids.size() * sizeof(engine::TokenId));
  ids = std::vector<engine::TokenId>();
}

http::ReplyPart GenerationReply::MakeEvents() {
  http::ReplyPart part;
  std::optional<engine::Usage> usage;
  if (continuous_usage_) usage = TotalUsage();
  const auto failed_behind = [&](size_t prompt) {
    http::ReplyPart failed = FailedPart(prompt);
    failed.body.insert(0, part.body);
    return failed;
  };
  do {
    size_t bytes = kPartBytes;
    for (size_t i = 0; i < prompts_.size() && bytes > 0; ++i) {
      PromptState& prompt = prompts_[next_prompt_];
      if (const auto& sampled = prompt.batch.first_sampled; sampled && !prompt.taken()) {
        part.due_since = std::min(part.due_since.value_or(*sampled), *sampled);
      }
      TakeBatch(next_prompt_, &bytes);
      if (continuous_usage_) ReportReasoning();
      ShowPieces(next_prompt_, usage, &part.body);
      if (!prompt.taken()) break;
      FreeIfTaken(&prompt);
      if (!prompt.batch.status.ok()) {
        return failed_behind(next_prompt_);
      }
      next_prompt_ = (next_prompt_ + 1) % prompts_.size();
    }
  } while (part.body.empty() && !AllTaken());
  part.last = AllFinished() && AllTaken();
  if (part.last) {
    // The loop may end in front of one that failed and has nothing to show.
    for (size_t i = 0; i < prompts_.size(); ++i) {
      if (!prompts_[i].batch.status.ok()) return failed_behind(i);
    }
    ReportReasoning();
    format_->AppendEnd(TotalUsage(), &part.body);
  }
  if (!part.body.empty() && !head_sent_) {
    head_sent_ = true;
    part.head = EventStreamHead();
  }
  return part;
}

http::ReplyPart GenerationReply::MakeWhole() {
  for (size_t i = 0; i < prompts_.size(); ++i) {
    size_t unlimited = SIZE_MAX;
    TakeBatch(i, &unlimited);
    ShowPieces(i, std::nullopt, nullptr);
    FreeIfTaken(&prompts_[i]);
    if (absl::Status status = HoldWhole(); !status.ok()) return FailedPart(status);
  }
  if (!AllFinished()) return {};
  ReportReasoning();
  http::ReplyPart part;
  part.last = true;
  part.head.emplace();
  part.body = format_->TakeWhole(prompt_tokens_, TotalUsage());
  // Here and not where the reply ends: that is an I/O thread.
  prompt_tokens_.clear();
  for (PromptState& prompt : prompts_) {
    prompt.batch = {};
    prompt.stream->Release();
  }
  return part;
}

size_t GenerationReply::OutputBytes(const engine::TokenEvent& event) const {
  constexpr size_t kEventBytes = 250;
  return KeptBytes(event) + (stream_events_ && !event.from_prompt ? kEventBytes : 0);
}

const ChoiceText& GenerationReply::TextOf(size_t prompt, const engine::TokenEvent& event) const {
  return texts_[prompt * static_cast<size_t>(choices_per_prompt_) + event.choice];
}

// Of a thought a response keeps no log-probabilities.
size_t GenerationReply::KeptBytesOf(const ChoiceText& text, const engine::TokenEvent& event) const {
  if (endpoint_ != Endpoint::kResponses || !text.thinks()) return KeptBytes(event);
  return output_.include_reasoning ? KeptBytes({}) : 0;
}

size_t GenerationReply::PromptIdsBytes(size_t prompt, const ChoiceText& text) const {
  const bool shows = stream_events_ && output_.token_ids && !text.begun();
  return shows ? kPromptIdBytes * prompt_tokens_[prompt].ids.size() : 0;
}

void GenerationReply::TakeBatch(size_t prompt, size_t* bytes) {
  PromptState& state = prompts_[prompt];
  const int32_t base = static_cast<int32_t>(prompt) * choices_per_prompt_;
  const bool tells_prompt =
      !stream_events_ && (output_.token_ids || output_.prompt_logprobs.has_value());
  for (; state.next < state.batch.tokens.size() && *bytes > 0; ++state.next) {
    const engine::TokenEvent& event = state.batch.tokens[state.next];
    const size_t event_bytes = OutputBytes(event);
    if (event.from_prompt) {
      if (tells_prompt && event.choice == 0) {
        PromptTokens& shown = prompt_tokens_[prompt];
        if (output_.token_ids) shown.ids.push_back(event.token);
        if (output_.prompt_logprobs.has_value()) shown.logprobs.push_back(DetailsOf(event));
        whole_bytes_ += event_bytes * static_cast<size_t>(choices_per_prompt_);
      }
      if (!output_.echo) continue;
    }
    ChoiceText& text = texts_[base + event.choice];
    const size_t first_bytes =
        (text.begun() ? 0 : output_.prefix.size()) + PromptIdsBytes(prompt, text);
    text.Add(event);
    whole_bytes_ += KeptBytesOf(text, event);
    *bytes -= std::min(*bytes, event_bytes + first_bytes);
  }
  if (state.next < state.batch.tokens.size()) return;
  for (const engine::ChoiceEnd& end : state.batch.ends) {
    // What ends by a fault has no reason to finish that a client would know: the error follows.
    const bool by_fault = end.reason == engine::FinishReason::kError ||
                          end.reason == engine::FinishReason::kCancelled;
    if (!by_fault || state.batch.status.ok()) texts_[base + end.choice].End(end);
  }
  state.batch.ends.clear();
}

void GenerationReply::ShowPieces(size_t prompt, const std::optional<engine::Usage>& usage,
                                 std::string* events) {
  const int32_t base = static_cast<int32_t>(prompt) * choices_per_prompt_;
  for (int32_t i = base; i < base + choices_per_prompt_; ++i) {
    for (TextPiece& piece : texts_[i].ready()) {
      if (stream_events_) {
        format_->AppendEvents(i, piece, prompt_tokens_[prompt].ids, usage, events);
      } else {
        format_->Keep(i, std::move(piece));
      }
    }
    texts_[i].ClearReady();
  }
  NoteBegun(prompt);
}

void GenerationReply::ReportMisses() {
  std::vector<std::optional<engine::CacheMiss>> misses;
  for (const PromptState& prompt : prompts_) {
    // Not looked for yet: usage comes once its request has started.
    if (prompt.usage.prompt_tokens == 0) return;
    misses.push_back(prompt.usage.miss);
  }
  format_->SetMisses(std::move(misses));
}

void GenerationReply::ReportReasoning() {
  if (output_.reasoning == engine::ReasoningFormat::kNone) return;
  int64_t tokens = 0;
  for (const ChoiceText& text : texts_) tokens += text.reasoning_tokens();
  format_->SetReasoningTokens(tokens);
}

engine::Usage GenerationReply::TotalUsage() const {
  engine::Usage total;
  for (const PromptState& prompt : prompts_) {
    total.prompt_tokens += prompt.usage.prompt_tokens;
    total.cached_tokens += prompt.usage.cached_tokens;
    total.written_tokens += prompt.usage.written_tokens;
    total.completion_tokens += prompt.usage.completion_tokens;
    total.computed_tokens += prompt.usage.computed_tokens;
  }
  return total;
}

bool GenerationReply::AllTaken() const {
  return std::all_of(prompts_.begin(), prompts_.end(),
                     [](const PromptState& prompt) { return prompt.taken(); });
}

bool GenerationReply::AllFinished() const {
  for (const PromptState& prompt : prompts_) {
    if (!prompt.finished) return false;
  }
  return true;
}

http::ReplyPart GenerationReply::FailedPart(size_t prompt) {
  ApiError error = ApiErrorFromStatus(NamingForm(prompts_[prompt].batch.status, form_.get()));
  // What the parser let pass and the engine refuses: an empty prompt, one that is too long, a
  // conversation that the template does not take.
  if (error.http_status == 400 && !error.param.has_value()) {
    const std::string_view field = FieldThatIsTooMuch(error.message);
    error.param = field.empty() ? InputField(endpoint_) : field;
    if (field.empty() && prompts_.size() > 1) {
      error.message = Concat("prompt[", prompt, "]: ", error.message);
    }
  }
  return FailedPart(prompts_[prompt].batch.status, error);
}

http::ReplyPart GenerationReply::FailedPart(const absl::Status& status) {
  return FailedPart(status, ApiErrorFromStatus(status));
}

void GenerationReply::NoteFailure(const absl::Status& status, const ApiError& error) {
  error_code_ = error.code.value_or(error.type);
  if (error.http_status < 500) return;
  log_->Error("request failed",
              {{"request", request_id_}, {"status", std::string(status.ToString())}});
}

http::ReplyPart GenerationReply::FailedPart(const absl::Status& status, const ApiError& error) {
  CancelUnfinished();
  NoteFailure(status, error);
  http::ReplyPart part;
  part.last = true;
  if (!head_sent_) {
    part.head = ErrorHead(error);
    part.body = ErrorBody(error);
    return part;
  }
  ReportReasoning();
  format_->AppendFailure(error, TotalUsage(), &part.body);
  return part;
}

}  // namespace refrain::server::openai
