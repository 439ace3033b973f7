#include "server/thread_stacks.h"

#include <pthread.h>

#include <cstddef>

namespace refrain::server {

void EnlargeThreadStacks() {
  constexpr size_t kLeastBytes = size_t{2} << 20;
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return;
  size_t bytes = 0;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  if (bytes < kLeastBytes && ::pthread_attr_setstacksize(&attributes, kLeastBytes) == 0) {
    ::pthread_setattr_default_np(&attributes);
  }
  ::pthread_attr_destroy(&attributes);
}

}  // namespace refrain::server
