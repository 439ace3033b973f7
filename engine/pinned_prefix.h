#ifndef REFRAIN_ENGINE_PINNED_PREFIX_H_
#define REFRAIN_ENGINE_PINNED_PREFIX_H_

#include <cstdint>
#include <string>
#include <vector>

namespace refrain::engine {

enum class PinId : uint64_t {};  // never reused in a process

// A prompt whose beginning is kept in the KV cache until it is unpinned.
struct PinnedPrefix {
  PinId id{};
  std::string tenant;  // "" where tenants share
  bool salted = false;
  int32_t prompt_tokens = 0;
  int32_t pinned_tokens = 0;  // whole chunks only
};

struct PinList {
  std::vector<PinnedPrefix> pins;  // oldest first
  int32_t pinned_chunks = 0;       // counted once where pins share
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_PINNED_PREFIX_H_
