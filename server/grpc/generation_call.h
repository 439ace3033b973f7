#ifndef REFRAIN_SERVER_GRPC_GENERATION_CALL_H_
#define REFRAIN_SERVER_GRPC_GENERATION_CALL_H_

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/annotated_mutex.h"
#include "engine/engine.h"
#include "engine/token_stream.h"
#include "proto/inference.pb.h"
#include "server/grpc/answer_writer.h"
#include "server/grpc/call_record.h"
#include "server/grpc/generation_request.h"
#include "server/grpc/message.h"
#include "server/grpc/reception.h"
#include "server/grpc/stalling_call.h"
#include "server/wakeup_queue.h"

namespace refrain::server::rpc {

// One Generate or Chat call, from its request to its last message. At most one message is on its
// way to the client; what the engine makes meanwhile waits in the token stream and goes out
// together. So a slow reader costs its own stream's memory and nobody's time.
//
//           the stream can be read (engine) --\      /-- nothing to read --> idle
//   idle -- OnWakeup (of Reception::streams) --> busy -- StartWrite --> OnWriteDone --> busy
//                    a cancelled call (gRPC) --/      \-- end, error, cancelled --> Finish
//
// `busy_` is a claim: who sets it, on whatever thread, alone reads the stream and writes; who finds
// it set leaves `again_` behind. A call that has finished stays busy. Neither the claim nor the
// stream is held locked while gRPC is called, for it may call back at once (CompleteHere).
//
// Lives until gRPC is done with it (OnDone) and no task refers to it any more. A call that is
// cancelled, by its client, its deadline or a broken connection, ends the engine's work at once,
// wherever it is.
class GenerationCall final : public ::grpc::ServerWriteReactor<::grpc::ByteBuffer>,
                             public StallingCall,
                             public WakeupQueue::Target,
                             public std::enable_shared_from_this<GenerationCall> {
 public:
  // Turns the call's message, once it is read, into the engine's request.
  using ReadRequest = std::function<absl::StatusOr<GenerationRequest>(const ModelLimits& limits)>;

  // All outlive the call. `queue`: as CompleteHere has it.
  static GenerationCall* Start(::grpc::CallbackServerContext* context, grpc_completion_queue* queue,
                               Reception* reception, const Incoming& incoming, ReadRequest read);

  GenerationCall(::grpc::CallbackServerContext* context, grpc_completion_queue* queue,
                 Reception* reception, const Incoming& incoming, ReadRequest read)
      : StallingCall(context),
        context_(context),
        queue_(queue),
        reception_(reception),
        incoming_(incoming),
        read_(std::move(read)) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  // There may be something to read.
  void OnWakeup() override;

 private:
  using Clock = std::chrono::steady_clock;

  void Enter();
  // With the claim, as all below.
  void Submit();
  absl::Status TrySubmit();
  void Advance();
  // What comes next of the answer: message_bytes_, its end, or nothing yet, and the claim is given
  // back.
  enum class Next { kMessage, kEnd, kNothing };
  absl::StatusOr<Next> FindNext();
  void ReadStream();
  std::shared_ptr<engine::TokenStream> Stream();
  bool Cancelled();
  void End(absl::Status status);
  // The message that goes with the end, where there is one.
  absl::Status WriteLast(const absl::Status& status);
  const std::string& request_id() const override { return record_.request_id; }
  bool GivesUp() override;
  // The message that was on its way is with the socket.
  void NoteSent();
  void NoteOutcome();

  ::grpc::CallbackServerContext* const context_;
  grpc_completion_queue* const queue_;
  Reception* const reception_;
  const Incoming incoming_;
  const ReadRequest read_;
  const Clock::time_point begin_ = Clock::now();
  std::shared_ptr<GenerationCall> self_;  // until OnDone
  std::function<void()> wake_;

  // Whoever has the claim.
  Caller caller_;
  access::Ticket ticket_;
  std::optional<AnswerWriter> writer_;
  bool continuous_usage_ = false;
  std::shared_ptr<const engine::OutputFormat> form_;  // null: any
  engine::Usage usage_;
  bool stream_finished_ = false;
  absl::Status stream_status_;
  v1::GenerateResponse message_;
  ::grpc::ByteBuffer message_bytes_;  // on their way while a write is
  bool last_message_ = false;         // it goes with the call's end
  CallRecord record_;
  std::string error_code_;  // "" = none
  size_t choices_ = 0;      // 0 until it is submitted
  std::optional<double> first_token_ms_;
  // Since when the oldest of the tokens on their way was there.
  std::optional<Clock::time_point> sampled_;

  Mutex mutex_;
  bool busy_ REFRAIN_GUARDED_BY(mutex_) = true;
  bool again_ REFRAIN_GUARDED_BY(mutex_) = false;
  bool cancelled_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::shared_ptr<engine::TokenStream> stream_ REFRAIN_GUARDED_BY(mutex_);  // set once
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_GENERATION_CALL_H_
