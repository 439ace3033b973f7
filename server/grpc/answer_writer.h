#ifndef REFRAIN_SERVER_GRPC_ANSWER_WRITER_H_
#define REFRAIN_SERVER_GRPC_ANSWER_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/token_stream.h"
#include "proto/inference.pb.h"
#include "server/disposal.h"
#include "server/grpc/generation_request.h"
#include "server/openai/shown_text.h"

namespace refrain::server::rpc {

// Turns what the engine sends of one request into messages of bounded size. One thread at a time;
// the tokenizer outlives it.
//
//   writer.Take(stream->Read());
//   do { writer.Fill(&message); send(message); } while (!writer.drained());
class AnswerWriter {
 public:
  // A reader that was slow gets its tokens in messages of so many.
  static constexpr size_t kMaxMessageTokens = 1024;
  static constexpr size_t kMaxMessageLogprobs = 128;  // with log-probabilities: up to 21 a token

  // `disposal`: where large batches go that are done with; null: they are freed on the spot.
  AnswerWriter(const engine::Tokenizer* tokenizer, const AnswerOptions& options,
               std::shared_ptr<Disposal> disposal = nullptr);
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;
  ~AnswerWriter() { DropBatch(); }

  // In place of what was taken before.
  void Take(engine::StreamBatch batch);
  bool drained() const { return next_ == batch_.tokens.size() && batch_.ends.empty(); }
  // Replaces what the message says by what comes next, but for its usage; false when that is
  // nothing.
  bool Fill(v1::GenerateResponse* message);
  void FillUsage(const engine::Usage& usage, v1::Usage* out) const;

 private:
  void DropBatch();
  void AddPromptToken(const engine::TokenEvent& event, v1::GenerateResponse* message) const;
  v1::TokenLogprob LogprobOf(const engine::TokenEvent& event) const;
  v1::ChoiceDelta* DeltaOf(int32_t choice, v1::GenerateResponse* message);
  void AddToken(const engine::TokenEvent& event, v1::ChoiceDelta* delta);
  void AddShown(const openai::ShownText::Output& output, v1::ChoiceDelta* delta) const;
  void AddEnd(const engine::ChoiceEnd& end, v1::ChoiceDelta* delta);

  const engine::Tokenizer* const tokenizer_;
  const AnswerOptions options_;
  const std::shared_ptr<Disposal> disposal_;
  std::vector<openai::ShownText> texts_;  // [num_choices]
  std::vector<int> delta_indexes_;        // [num_choices] in the message, -1 = none
  engine::StreamBatch batch_;
  size_t next_ = 0;       // into batch_.tokens
  bool started_ = false;  // texts_ have been told where the prompt left the model
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_ANSWER_WRITER_H_
