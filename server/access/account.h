#ifndef REFRAIN_SERVER_ACCESS_ACCOUNT_H_
#define REFRAIN_SERVER_ACCESS_ACCOUNT_H_

#include <cstdint>

#include "server/access/gate.h"

namespace refrain::server::access {

// What one key uses now: where a ticket gives back its place and its tokens are counted. Any
// thread.
class Ticket::Account {
 public:
  virtual ~Account() = default;
  virtual void Leave() = 0;
  virtual void Charge(int64_t tokens) = 0;
};

}  // namespace refrain::server::access

#endif  // REFRAIN_SERVER_ACCESS_ACCOUNT_H_
