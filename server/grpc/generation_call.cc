#include "server/grpc/generation_call.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "server/form_error.h"
#include "server/generation_note.h"
#include "server/grpc/completion_here.h"
#include "server/grpc/guarded.h"
#include "server/rule_bytes.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {
namespace {

// A call's deadline in seconds from now; none when it is further than anybody waits.
std::optional<std::chrono::duration<double>> TimeLeft(
    const ::grpc::CallbackServerContext& context) {
  constexpr auto kYear = std::chrono::hours(24 * 365);
  const auto now = std::chrono::system_clock::now();
  const auto deadline = context.deadline();
  if (deadline > now + kYear) return std::nullopt;
  return deadline - now;
}

}  // namespace

GenerationCall* GenerationCall::Start(::grpc::CallbackServerContext* context,
                                      grpc_completion_queue* queue, Reception* reception,
                                      const Incoming& incoming, ReadRequest read) {
  auto call =
      std::make_shared<GenerationCall>(context, queue, reception, incoming, std::move(read));
  call->self_ = call;
  call->Enter();
  return call.get();
}

void GenerationCall::Enter() {
  record_.server_streams = true;
  wake_ = reception_->streams().MakeWaker(weak_from_this(), context_->peer());
  absl::StatusOr<Caller> caller =
      reception_->Enter(context_, access::Area::kInference, incoming_, &record_);
  if (!caller.ok()) return End(caller.status());
  caller_ = *std::move(caller);
  if (record_.request_bytes <= Reception::kQuickMessageBytes) return Submit();
  reception_->slow().Post(caller_.principal.key_name,
                          [self = shared_from_this()] { self->Submit(); });
}

void GenerationCall::Submit() {
  const absl::Status status = Guarded([this] { return TrySubmit(); });
  if (!status.ok()) return End(status);
  Advance();
}

absl::Status GenerationCall::TrySubmit() {
  if (Cancelled()) return absl::CancelledError("the call was cancelled");
  absl::Status message_read = reception_->Read(incoming_, &caller_, &record_);
  if (!message_read.ok()) return message_read;
  absl::StatusOr<GenerationRequest> read = read_(reception_->LimitsOf(*caller_.engine));
  if (!read.ok()) return read.status();
  const size_t read_bytes = read->conversation_bytes + RuleBytes(read->request);
  if (read_bytes > kUncountedBytes) {
    HeldBytes& held = *caller_.held_bytes;
    if (auto more = HoldBytes(held.bytes() + read_bytes, &held); !more.ok()) return more;
  }
  engine::Request& request = read->request;
  request.id = caller_.request_id;
  request.tenant = caller_.principal.key_name;
  request.tenant_weight = caller_.principal.weight;
  request.arrived = caller_.arrived;
  if (const auto left = TimeLeft(*context_)) {
    if (left->count() <= 0) return absl::DeadlineExceededError("the call's deadline has passed");
    const std::chrono::duration<double> whole = Clock::now() - caller_.arrived + *left;
    request.timeout_s = std::min(whole.count(), request.timeout_s.value_or(whole.count()));
  }
  const std::shared_ptr<UnreadAnswers>& unread = reception_->options().unread;
  const std::shared_ptr<Disposal> disposal = unread != nullptr ? unread->disposal() : nullptr;
  writer_.emplace(&caller_.engine->tokenizer(), read->answer, disposal);
  continuous_usage_ = read->answer.continuous_usage;
  absl::StatusOr<access::Ticket> ticket = reception_->gate().Admit(caller_.principal);
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  if (Cancelled()) return absl::CancelledError("the call was cancelled");
  form_ = request.format;
  auto submitted = caller_.engine->Submit(std::move(request));
  if (!submitted.ok()) return NamingForm(submitted.status(), form_.get());
  if (auto has_key = reception_->gate().StillHas(caller_.principal.key_name); !has_key.ok()) {
    (*submitted)->Cancel();
    return has_key;
  }
  choices_ = static_cast<size_t>(read->answer.num_choices);
  const std::shared_ptr<engine::TokenStream> stream = *std::move(submitted);
  {
    MutexLock lock(mutex_);
    stream_ = stream;
  }
  if (unread != nullptr) {
    unread->Count(unread->Begin(caller_.principal.key_name), stream);
  }
  reception_->Watch(weak_from_this());
  stream->SetWakeup(wake_);
  return absl::OkStatus();
}

void GenerationCall::OnWakeup() {
  {
    MutexLock lock(mutex_);
    if (busy_) {
      again_ = true;
      return;
    }
    busy_ = true;
  }
  Advance();
}

void GenerationCall::Advance() {
  const absl::StatusOr<Next> next = Guarded([this] { return FindNext(); });
  if (!next.ok()) {
    message_.Clear();  // it may be half of one
    return End(next.status());
  }
  switch (*next) {
    case Next::kMessage:
      BeginWrite();
      return CompleteHere(queue_, [this] { StartWrite(&message_bytes_); });
    case Next::kEnd:
      return End(stream_status_);
    case Next::kNothing:
      return;
  }
}

absl::StatusOr<GenerationCall::Next> GenerationCall::FindNext() {
  for (;;) {
    if (Cancelled()) return absl::CancelledError("the call was cancelled");
    if (GivesUp()) {
      ReadStream();  // in place of what was read before
      return stream_status_;
    }
    if (writer_->drained()) {
      ReadStream();
    } else {
      Stream()->NoteReading();
    }
    const bool has_news = writer_->Fill(&message_);
    if (continuous_usage_) writer_->FillUsage(usage_, message_.mutable_usage());
    if (stream_finished_ && writer_->drained()) return Next::kEnd;
    if (has_news) {
      WriteMessage(message_, &message_bytes_);
      return Next::kMessage;
    }
    MutexLock lock(mutex_);
    if (!std::exchange(again_, false)) {
      busy_ = false;
      return Next::kNothing;
    }
  }
}

std::shared_ptr<engine::TokenStream> GenerationCall::Stream() {
  MutexLock lock(mutex_);
  return stream_;
}

void GenerationCall::ReadStream() {
  engine::StreamBatch batch = Stream()->Read();
  stream_finished_ = batch.finished;
  stream_status_ = NamingForm(batch.status, form_.get());
  usage_ = batch.usage;
  if (!first_token_ms_.has_value() && batch.has_generated()) {
    first_token_ms_ = std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
  }
  if (!sampled_.has_value()) sampled_ = batch.first_sampled;
  ticket_.ChargeUsage(usage_);
  writer_->Take(std::move(batch));
}

bool GenerationCall::Cancelled() {
  MutexLock lock(mutex_);
  return cancelled_;
}

bool GenerationCall::GivesUp() {
  const std::shared_ptr<engine::TokenStream> stream = Stream();
  return stream != nullptr && stream->cut();
}

absl::Status GenerationCall::WriteLast(const absl::Status& status) {
  if (status.ok()) writer_->FillUsage(usage_, message_.mutable_usage());
  const bool has_last = status.ok() || (message_.choices_size() > 0 && !Cancelled());
  if (has_last) WriteMessage(message_, &message_bytes_);
  last_message_ = has_last;
  return absl::OkStatus();
}

// The claim is never given back.
void GenerationCall::End(absl::Status status) {
  const absl::Status written = Guarded([&] { return WriteLast(status); });
  if (!written.ok()) status = written;
  const ::grpc::Status answer = reception_->NoteEnd(*context_, status, Cancelled(), &record_);
  if (!status.ok()) {
    const ApiError error = ApiErrorFromStatus(status);
    error_code_ = error.code.value_or(error.type);
    if (choices_ == 0) AppendRefusal(status, &record_.details);
  }
  ticket_.Leave();
  if (last_message_) {
    BeginWrite();
    StartWriteAndFinish(&message_bytes_, ::grpc::WriteOptions(), answer);
  } else {
    Finish(answer);
  }
}

void GenerationCall::OnWriteDone(bool ok) {
  EndWrite();
  if (ok) {
    NoteSent();
  } else {
    MutexLock lock(mutex_);
    cancelled_ = true;  // nobody is there any more
  }
  Advance();
}

void GenerationCall::NoteSent() {
  record_.response_bytes += message_bytes_.Length();
  const std::optional<Clock::time_point> sampled = std::exchange(sampled_, std::nullopt);
  const auto& observer = reception_->options().on_message_sent;
  if (sampled.has_value() && observer) observer(Clock::now() - *sampled);
}

void GenerationCall::NoteOutcome() {
  if (Cancelled()) {
    Reception::NoteLeft(*context_, &record_);
  } else if (last_message_) {
    NoteSent();
  }
  record_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (choices_ == 0) return;
  AppendOutcome({.stream = true,
                 .choices = choices_,
                 .usage = usage_,
                 .first_token_ms = first_token_ms_,
                 .error = error_code_},
                &record_.details);
}

void GenerationCall::OnCancel() {
  std::shared_ptr<engine::TokenStream> stream;
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    stream = stream_;
  }
  if (stream != nullptr) stream->Cancel();
  wake_();
}

void GenerationCall::OnDone() {
  EndWrite();
  std::shared_ptr<engine::TokenStream> stream;
  {
    MutexLock lock(mutex_);
    stream = std::exchange(stream_, nullptr);
  }
  if (stream != nullptr) {
    stream->SetWakeup(nullptr);
    // A stream without tokens has woken nobody: who goes away pays for what was computed.
    if (!stream_finished_) {
      engine::StreamBatch rest = stream->Read();
      usage_ = rest.usage;
      writer_->Take(std::move(rest));
    }
    ticket_.ChargeUsage(usage_);
  }
  stream.reset();  // cancels it if it still runs
  ticket_ = access::Ticket();
  NoteOutcome();
  caller_.held_bytes.reset();
  reception_->Leave(record_);
  self_.reset();
}

}  // namespace refrain::server::rpc
