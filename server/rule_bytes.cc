#include "server/rule_bytes.h"

#include <string>

namespace refrain::server {
namespace {

template <typename T>
size_t BytesOf(const engine::SharedList<T>& list) {
  return list.size() * sizeof(T);
}

size_t TextBytes(const engine::SharedList<std::string>& strings) {
  size_t bytes = 0;
  for (const std::string& string : strings) bytes += string.size();
  return bytes;
}

}  // namespace

size_t RuleBytes(const engine::Request& request) {
  const engine::SamplingParams& sampling = request.sampling;
  const engine::StopParams& stop = request.stop;
  // A bad word is encoded twice, to a token for each byte at most.
  constexpr size_t kEncoded = 2;
  const size_t banned =
      kEncoded * (sampling.bad_words.size() * sizeof(std::vector<engine::TokenId>) +
                  TextBytes(sampling.bad_words) * sizeof(engine::TokenId));
  return BytesOf(stop.stop) + TextBytes(stop.stop) + BytesOf(stop.stop_token_ids) +
         BytesOf(sampling.bad_words) + TextBytes(sampling.bad_words) + banned +
         BytesOf(sampling.logit_bias) + BytesOf(sampling.allowed_tokens) +
         (request.format != nullptr ? request.format->bytes() : 0);
}

}  // namespace refrain::server
