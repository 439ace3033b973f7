#ifndef REFRAIN_SERVER_OPENAI_TOKENIZE_REPLY_H_
#define REFRAIN_SERVER_OPENAI_TOKENIZE_REPLY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "server/access/gate.h"
#include "server/byte_budget.h"
#include "server/http/message.h"

namespace refrain::server::openai {

// The answers of /tokenize and /detokenize. Either keeps its key's place until its last bytes are
// sent, and counts its bytes, unless they are few, until they have been.

// That of /tokenize, once the engine has the ids of the text. Destroyed early, it ends the
// engine's work. An error of the engine becomes an error answer.
class TokenizeReply final : public http::Reply {
 public:
  // `stream` is one of Engine::Tokenize; `text_hold`, the part that the text has of what all may
  // hold, is held until the ids are there. It may be null. `strings`: gives the tokens' texts;
  // null: they are not asked for. It outlives the reply.
  TokenizeReply(std::shared_ptr<engine::TokenStream> stream, int32_t max_context_tokens,
                access::Ticket ticket, std::shared_ptr<const void> text_hold,
                std::unique_ptr<HeldBytes> held, const engine::Tokenizer* strings);
  ~TokenizeReply() override;

  void Start(std::function<void()> wakeup) override;
  http::ReplyPart Next() override;
  void OnLastBytes() override { ticket_.Leave(); }

 private:
  http::ReplyPart MakePart();

  const std::shared_ptr<engine::TokenStream> stream_;
  const int32_t max_context_tokens_;
  access::Ticket ticket_;
  std::shared_ptr<const void> text_hold_;
  const std::unique_ptr<HeldBytes> held_;
  const engine::Tokenizer* const strings_;
  std::vector<engine::TokenId> ids_;
};

// That of /detokenize, whose body is there from the start.
class DetokenizeReply final : public http::Reply {
 public:
  // An error answer where the budget of `held` has no room.
  static std::unique_ptr<http::Reply> Make(const std::string& text, access::Ticket ticket,
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
