#ifndef REFRAIN_SERVER_OPENAI_GENERATION_REPLY_H_
#define REFRAIN_SERVER_OPENAI_GENERATION_REPLY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/output_format.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/access/gate.h"
#include "server/byte_budget.h"
#include "server/disposal.h"
#include "server/http/message.h"
#include "server/log.h"
#include "server/openai/answer_format.h"
#include "server/openai/choice_text.h"
#include "server/openai/protocol.h"
#include "server/status_mapping.h"

namespace refrain::server::openai {

// The answer to one call, made of the engine's streams, one per prompt; choice index = prompt * n +
// the stream's choice. Sent as events or as a whole, in the words of its endpoint (AnswerFormat).
// An error before the first byte becomes an error answer with its own status, a later one (behind a
// ping, too) an error event without the usual end; the connection is kept. Destroyed
// early, it cancels what still runs.
//
// What has gathered while the client did not read goes out in parts of bounded size, the rest waits
// in the streams, which may be cut. What can only be sent as a whole and is large is made on a
// worker thread.
class GenerationReply final : public http::Reply {
 public:
  struct Parts {
    std::string request_id;
    std::vector<std::shared_ptr<engine::TokenStream>> streams;
    const engine::Tokenizer* tokenizer = nullptr;  // outlives it
    std::string model;
    int64_t created_unix_s = 0;
    Log* log = nullptr;  // outlives it
    access::Ticket ticket;
    std::shared_ptr<http::RequestNotes> notes;  // for the request log; may be null
    // Grows with an answer that is sent as a whole, or has to end with one, of which a client that
    // reads slowly keeps all in memory; null: nothing counts it.
    std::unique_ptr<HeldBytes> held;
    std::unique_ptr<HeldBytes> rules_hold;  // of the requests' RuleBytes; null: not counted
    std::shared_ptr<Disposal> disposal;     // of what is large of it; null: destroyed at once
  };

  // Whether all of the answer is kept up to its end: Parts::held is of use.
  static bool KeepsWhole(const GenerationCall& call);

  GenerationReply(const GenerationCall& call, Parts parts);
  ~GenerationReply() override;

  void Start(std::function<void()> wakeup) override;
  http::ReplyPart Next() override;
  http::ReplyPart Ping() override;
  void WhileBlocked() override { DropIfCut(); }
  void OnLastBytes() override { ticket_.Leave(); }

 private:
  struct PromptState {
    std::shared_ptr<engine::TokenStream> stream;
    bool finished = false;  // nothing is left to be read
    engine::Usage usage;
    engine::StreamBatch batch;  // read last
    size_t next = 0;            // of its tokens, those before are taken
    bool may_think = false;     // its choices have not been told where it left the model
    // Where events show the prompt's ids: its choices that have not begun, and those of them that
    // the batch has tokens of.
    size_t to_begin = 0;
    size_t beginning = 0;

    bool taken() const { return next == batch.tokens.size() && batch.ends.empty(); }
  };

  // Where a stream was cut, as nobody reads it (UnreadAnswers), nothing more of the answer is sent
  // but why; then that is known, and what waited in the streams is freed.
  void DropIfCut();
  void FreeIfTaken(PromptState* prompt);
  void Dispose(std::vector<engine::TokenEvent> tokens) const;
  // Reads the streams whose last batch is taken. The first prompt that has failed before anything
  // was sent.
  std::optional<size_t> ReadStreams();
  http::ReplyPart MakeEvents();
  http::ReplyPart MakeWhole();
  // Takes tokens for about `bytes` of output, and lowers it by them.
  void TakeBatch(size_t prompt, size_t* bytes);
  // What its choices have become, since the last call, to `events` or kept for the whole answer.
  void ShowPieces(size_t prompt, const std::optional<engine::Usage>& usage, std::string* events);
  size_t OutputBytes(const engine::TokenEvent& event) const;
  size_t KeptBytesOf(const ChoiceText& text, const engine::TokenEvent& event) const;
  const ChoiceText& TextOf(size_t prompt, const engine::TokenEvent& event) const;
  // What the ids of the prompt add, of which each choice's first event shows all.
  size_t PromptIdsBytes(size_t prompt, const ChoiceText& text) const;
  // What the batch, just read, has of choices that are to begin.
  void FindBeginning(size_t prompt);
  // Once all have begun the prompt's ids are freed.
  void NoteBegun(size_t prompt);
  void ReportMisses();
  void StartChoices(size_t prompt);
  void ReportReasoning();
  engine::Usage TotalUsage() const;
  bool AllFinished() const;
  bool AllTaken() const;
  bool IsLarge() const;
  bool BeginsWithManyIds() const;
  // Whether a stream's next part may be long whatever the tokens are: it repeats the request, or an
  // item or all of the answer.
  bool RepeatsMuch() const;
  // What its client may do about an answer that is too large to be kept.
  std::string_view WhatToAskFor() const;
  // About what is in memory at its end of an answer that is kept; else 0.
  size_t EndBytes() const;
  // Whether what is kept of a whole answer may be.
  absl::Status HoldWhole();
  void CancelUnfinished();
  void NoteOutcome();
  // For the logs.
  void NoteFailure(const absl::Status& status, const ApiError& error);
  http::ReplyPart FailedPart(size_t prompt);
  http::ReplyPart FailedPart(const absl::Status& status);
  http::ReplyPart FailedPart(const absl::Status& status, const ApiError& error);

  const Endpoint endpoint_;
  const bool stream_events_;
  const size_t whole_copies_;    // of the answer at its end; 0: it is not kept
  const size_t repeated_bytes_;  // of the request, all copies
  const bool continuous_usage_;
  const int32_t choices_per_prompt_;
  const std::string request_id_;
  Log* const log_;
  std::unique_ptr<AnswerFormat> format_;
  const OutputOptions output_;
  const std::shared_ptr<const engine::OutputFormat> form_;  // null: any
  std::vector<PromptState> prompts_;
  std::vector<PromptTokens> prompt_tokens_;  // [prompts]
  std::vector<ChoiceText> texts_;            // [choices]
  std::vector<bool> begins_;                 // [choices], PromptState::beginning's
  size_t whole_bytes_ = 0;                   // about, of one copy of the answer so far
  size_t next_prompt_ = 0;                   // whose turn it is
  bool head_sent_ = false;
  access::Ticket ticket_;
  const std::unique_ptr<HeldBytes> held_;  // may be null
  const std::unique_ptr<HeldBytes> rules_hold_;
  const std::shared_ptr<Disposal> disposal_;  // may be null
  const std::shared_ptr<http::RequestNotes> notes_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::optional<double> first_token_ms_;
  std::string error_code_;           // "" = none so far
  std::optional<absl::Status> cut_;  // why no more of it is sent
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_GENERATION_REPLY_H_
