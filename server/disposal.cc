#include "server/disposal.h"

#include <system_error>

namespace refrain::server {

Disposal::Disposal() {
  try {
    thread_.emplace(1, TaskQueue::Tasks::kLong);
  } catch (const std::system_error&) {
    return;  // whoever brings something has to wait
  }
}

}  // namespace refrain::server
