#ifndef REFRAIN_SERVER_OPENAI_TOKENIZE_REPLY_H_
#define REFRAIN_SERVER_OPENAI_TOKENIZE_REPLY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/access/gate.h"
#include "server/byte_budget.h"
#include "server/http/message.h"

namespace refrain::server::openai {

// The answers of /tokenize and /detokenize. Either keeps its key's place until its last bytes are
// sent, and counts its bytes, unless they are few, until they have been.

// That of /tokenize, once the engine has the ids of the text. Destroyed early, it ends the
// engine's work. An error of the engine becomes an error answer, whose code is noted.
class TokenizeReply final : public http::Reply {
 public:
  struct Parts {
    std::shared_ptr<engine::TokenStream> stream;  // one of Engine::Tokenize
    int32_t max_context_tokens = 0;
    access::Ticket ticket;
    // The part that the text has of what all may hold, until the ids are there; may be null.
    std::shared_ptr<const void> text_hold;
    std::unique_ptr<HeldBytes> held;
    // Gives the tokens' texts, outlives the reply; null: they are not asked for.
    const engine::Tokenizer* strings = nullptr;
    std::shared_ptr<http::RequestNotes> notes;  // for the request log; may be null
  };

  explicit TokenizeReply(Parts parts);
  ~TokenizeReply() override;

  void Start(std::function<void()> wakeup) override;
  http::ReplyPart Next() override;
  void OnLastBytes() override { parts_.ticket.Leave(); }

 private:
  http::ReplyPart MakePart();
  http::ReplyPart Refuse(const absl::Status& status) const;

  Parts parts_;
  std::vector<engine::TokenId> ids_;
};

// That of /detokenize, whose body is there from the start.
class DetokenizeReply final : public http::Reply {
 public:
  // UNAVAILABLE where the budget of `held` has no room.
  static absl::StatusOr<std::unique_ptr<http::Reply>> Make(const std::string& text,
                                                           access::Ticket ticket,
                                                           std::unique_ptr<HeldBytes> held);

  http::ReplyPart Next() override;
  void OnLastBytes() override { ticket_.Leave(); }

 private:
  DetokenizeReply(std::string body, access::Ticket ticket, std::unique_ptr<HeldBytes> held)
      : body_(std::move(body)), ticket_(std::move(ticket)), held_(std::move(held)) {}

  std::string body_;
  access::Ticket ticket_;
  const std::unique_ptr<HeldBytes> held_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TOKENIZE_REPLY_H_
