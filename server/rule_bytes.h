#ifndef REFRAIN_SERVER_RULE_BYTES_H_
#define REFRAIN_SERVER_RULE_BYTES_H_

#include <cstddef>

#include "engine/request.h"

namespace refrain::server {

// About what a request's stop strings, bad words, lists of tokens and form of the answer take in
// memory until it ends, at most: unlike its prompt, nothing else bounds them while it waits. Pure;
// any thread.
size_t RuleBytes(const engine::Request& request);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_RULE_BYTES_H_
