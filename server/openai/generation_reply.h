#ifndef REFRAIN_SERVER_OPENAI_GENERATION_REPLY_H_
#define REFRAIN_SERVER_OPENAI_GENERATION_REPLY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/access/gate.h"
#include "server/http/message.h"
#include "server/log.h"
#include "server/openai/choice_text.h"
#include "server/openai/protocol.h"
#include "server/openai/response_format.h"

namespace refrain::server::openai {

// The answer to one call, made of the engine's streams, one per prompt; choice index = prompt * n +
// the stream's choice. Sent as events or as a whole. An error before the first byte becomes an
// error answer with its own status, a later one an error event without [DONE], after which the
// connection closes. Destroyed early, it cancels what still runs.
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
  };

  GenerationReply(const GenerationCall& call, Parts parts);
  ~GenerationReply() override;

  void Start(std::function<void()> wakeup) override;
  http::ReplyPart Next() override;

 private:
  struct PromptState {
    std::shared_ptr<engine::TokenStream> stream;
    bool finished = false;
    engine::Usage usage;
  };

  // The first error of a stream that has failed, else OK.
  absl::Status ReadStreams(std::string* events);
  void TakeBatch(size_t prompt, engine::StreamBatch batch, std::string* events);
  void Keep(int32_t choice, TextPiece piece);
  void ReportMisses();
  engine::Usage TotalUsage() const;
  bool AllFinished() const;
  void CancelUnfinished();
  // What has been computed since the last call, to the key's account.
  void Charge();
  void NoteOutcome();
  http::ReplyPart FailedPart(const absl::Status& status);

  const bool stream_events_;
  const bool include_usage_;
  const bool continuous_usage_;
  const int32_t choices_per_prompt_;
  const std::string request_id_;
  Log* const log_;
  ResponseFormat format_;
  const OutputOptions output_;
  std::vector<PromptState> prompts_;
  std::vector<std::vector<TokenDetails>> prompt_tokens_;  // [prompts], where they are shown
  std::vector<ChoiceText> texts_;                         // [choices]
  std::vector<WholeChoice> choices_;                      // [choices], unused for events
  bool head_sent_ = false;
  access::Ticket ticket_;
  const std::shared_ptr<http::RequestNotes> notes_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::optional<double> first_token_ms_;
  // Of what was read last.
  std::optional<std::chrono::steady_clock::time_point> first_sampled_;
  int64_t charged_tokens_ = 0;
  std::string error_code_;  // "" = none so far
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_GENERATION_REPLY_H_
