#ifndef REFRAIN_SERVER_OPENAI_TOKENIZE_REPLY_H_
#define REFRAIN_SERVER_OPENAI_TOKENIZE_REPLY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/token_stream.h"
#include "server/access/gate.h"
#include "server/http/message.h"

namespace refrain::server::openai {

// The answer of /tokenize, once the engine has the ids of the text. Destroyed early, it ends the
// engine's work. An error of the engine becomes an error answer.
class TokenizeReply final : public http::Reply {
 public:
  // `stream` is one of Engine::Tokenize; `ticket` is held until the answer is over.
  TokenizeReply(std::shared_ptr<engine::TokenStream> stream, int32_t max_context_tokens,
                access::Ticket ticket);
  ~TokenizeReply() override;

  void Start(std::function<void()> wakeup) override;
  http::ReplyPart Next() override;

 private:
  http::ReplyPart MakePart();

  const std::shared_ptr<engine::TokenStream> stream_;
  const int32_t max_context_tokens_;
  const access::Ticket ticket_;
  std::vector<engine::TokenId> ids_;
};

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TOKENIZE_REPLY_H_
