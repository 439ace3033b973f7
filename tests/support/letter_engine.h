#ifndef REFRAIN_TESTS_SUPPORT_LETTER_ENGINE_H_
#define REFRAIN_TESTS_SUPPORT_LETTER_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "tests/support/fake_model_runner.h"

namespace refrain::testing {

// The real engine (threads, scheduler, prefix tree, sampler, beams, stop criteria, streams) over
// FakeModelRunner, which says letters, with so few slots and so little cache that requests wait for
// both and make way for each other.
class LetterEngine {
 public:
  static constexpr int32_t kSlots = 4;
  static constexpr int32_t kChunks = 16;
  static constexpr int32_t kChunkTokens = 16;
  static constexpr int32_t kContextTokens = 192;

  LetterEngine();

  engine::Engine* get() const { return engine_.get(); }
  // Waits until nothing runs or waits, undoes pins and drops what is cached. What is still taken
  // then, or was wrong in a step; "" if nothing.
  std::string Leftovers();

 private:
  FakeModelRunner* runner_ = nullptr;  // the engine's
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_LETTER_ENGINE_H_
