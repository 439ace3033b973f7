#include "server/openai/token_names.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"

namespace refrain::server::openai {
namespace {

// OpenAI clients know this value for "as good as impossible".
constexpr float kLeastLogprob = -9999.0f;

}  // namespace

std::string TokenText(std::string_view bytes) {
  if (engine::IsValidUtf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const unsigned char byte : bytes) {
    char escaped[8];
    text.append(escaped, std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte));
  }
  return text;
}

void AppendLogprob(float logprob, std::string* out) {
  AppendJsonNumber(std::isfinite(logprob) ? std::max(logprob, kLeastLogprob) : kLeastLogprob, out);
}

std::string TokenNames::NameOf(engine::TokenId token) const {
  if (as_ids_) return Concat("token_id:", static_cast<int32_t>(token));
  return TokenText(tokenizer_->TokenBytes(token));
}

void TokenNames::AppendToken(engine::TokenId token, float logprob, std::string* out) const {
  const std::string_view bytes = tokenizer_->TokenBytes(token);
  out->append("{\"token\":");
  AppendJsonString(NameOf(token), out);
  out->append(",\"logprob\":");
  AppendLogprob(logprob, out);
  out->append(",\"bytes\":[");
  for (size_t i = 0; i < bytes.size(); ++i) {
    ConcatTo(out, i == 0 ? "" : ",", static_cast<int>(static_cast<unsigned char>(bytes[i])));
  }
  out->append("]");
}

void TokenNames::AppendList(std::span<const TokenDetails> tokens,
                            const std::optional<TokenDetails>& end_token, std::string* out) const {
  const bool lists_end = end_token.has_value() && end_token->shown;
  for (size_t t = 0; t < tokens.size() + (lists_end ? 1 : 0); ++t) {
    const TokenDetails& details = t < tokens.size() ? tokens[t] : *end_token;
    if (t > 0) out->append(",");
    AppendToken(details.token, details.logprob.value_or(kLeastLogprob), out);
    out->append(",\"top_logprobs\":[");
    for (size_t i = 0; i < details.top.size(); ++i) {
      if (i > 0) out->append(",");
      AppendToken(details.top[i].token, details.top[i].logprob, out);
      out->append("}");
    }
    out->append("]}");
  }
}

}  // namespace refrain::server::openai
