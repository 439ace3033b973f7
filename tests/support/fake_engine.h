#ifndef REFRAIN_TESTS_SUPPORT_FAKE_ENGINE_H_
#define REFRAIN_TESTS_SUPPORT_FAKE_ENGINE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/clock.h"
#include "engine/engine.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/support/byte_tokenizer.h"

namespace refrain::testing {

struct FakeEngineOptions {
  std::string served_name = "fake-model";
  int32_t max_context_tokens = 4096;
  int32_t queued_requests = 1 << 20;  // more at once are refused
  std::chrono::microseconds token_delay{0};
  std::chrono::milliseconds end_delay{0};  // of its destructor
  // Tells only how tools are called and thoughts begin; empty: there is none.
  std::string chat_template;
  std::string says;  // in place of the prompt, if not empty
};

// An engine without a model: it answers with the prompt (of a chat: the last message), one token
// per byte, then ends; with ignore_eos it starts over. Choice i > 0 of n ends in " #i". Prompts may
// begin with directives:
//
//   [[delay_ms=N]]    N ms before each token      [[hold]]          no token until cancelled
//   [[reject=CODE]]   Submit fails                [[late=CODE]]     fails before the first token
//   [[fail_after=N]]  INTERNAL after N tokens     [[unencoded]]     waits to be encoded until then
//   [[stall]]         health says UNAVAILABLE until it is cancelled, and no token until then
//   [[throw]]         Submit and Tokenize throw std::bad_alloc
//   [[come_back_s=N]] before [[reject]], [[late]]: the error says when to come back
//
// CODE is a number of absl::StatusCode; where the request has a form of the answer, the error is
// about that. A prompt that was there before is reported as cached but
// for its last token; DescribeCache tells of one node per prompt, which can be pinned and dropped
// as one chunk, and ListSessions of one session. Any thread, as Engine.
class FakeEngine final : public engine::Engine {
 public:
  explicit FakeEngine(FakeEngineOptions options = {});
  ~FakeEngine() override;

  absl::StatusOr<std::shared_ptr<engine::TokenStream>> Submit(engine::Request request) override;
  // Answers at once, but for a text that begins with [[unencoded]]; a timeout of a millisecond at
  // most has passed by then.
  absl::StatusOr<std::shared_ptr<engine::TokenStream>> Tokenize(
      engine::TextPrompt text, std::string tenant, std::optional<double> timeout_s,
      std::optional<engine::Clock::TimePoint> arrived) override;
  const engine::ModelInfo& model() const override { return model_; }
  const engine::Tokenizer& tokenizer() const override { return tokenizer_; }
  const engine::ChatTemplate* chat_template() const override { return chat_template_.get(); }
  engine::EngineStats stats() const override;
  absl::StatusOr<engine::CacheView> DescribeCache(const engine::CacheViewLimits& limits) override;
  absl::StatusOr<engine::SessionList> ListSessions(int32_t max_sessions) override;
  absl::StatusOr<engine::PinnedPrefix> PinPrefix(const engine::Request& prompt) override;
  absl::Status UnpinPrefix(engine::PinId pin) override;
  absl::StatusOr<engine::PinList> PinnedPrefixes() override;
  absl::StatusOr<int32_t> DropPrefix(const engine::Request& prompt) override;
  absl::StatusOr<int32_t> DropIdleCache() override;
  // What is there has begun to run.
  engine::WaitingEnded EndWaiting(std::span<const std::string>, const absl::Status&,
                                  std::chrono::steady_clock::time_point) override {
    return {};
  }
  absl::Status health() const override;
  bool Drain(std::chrono::steady_clock::time_point deadline) override;
  void Abandon() override;

  // --- for tests ---
  // Called by each PinPrefix that pins, once it has; before there are any.
  void SetOnPin(std::function<void()> on_pin) { on_pin_ = std::move(on_pin); }
  // Called by each DescribeCache first, which takes as long; before there are any.
  void SetOnDescribe(std::function<void()> on_describe) { on_describe_ = std::move(on_describe); }
  void Die(absl::Status reason);
  // What was computed up to now, without a token, as the real one tells it of a long prompt.
  void TellUsage();
  // What stats tells beside the running sequences and the capacity.
  void SetCounts(const engine::EngineStats& counts);
  int submitted() const;
  int tokenized() const;  // calls of Tokenize
  int cancelled() const;  // streams that ended because their consumer cancelled
  engine::Request last_request() const;
  // False when it took longer than five seconds.
  bool WaitForRunning(int count) const;
  bool WaitForCancelled(int count) const;

 private:
  struct Choice {
    std::vector<engine::TokenEvent> tokens;  // all it will say
    engine::ChoiceEnd end;
    size_t sent = 0;
    bool ended = false;
  };
  struct Running {
    std::shared_ptr<engine::TokenStream> stream;
    std::vector<engine::TokenEvent> prompt_events;  // echo
    std::ptrdiff_t first_prompt_events = 0;         // of them, told a step before the others
    std::vector<kvcache::TokenId> prompt_ids;       // Request::tell_prompt
    std::vector<Choice> choices;
    engine::Usage usage;
    std::chrono::steady_clock::time_point next_token;
    std::chrono::microseconds delay{0};
    bool hold = false;
    bool stalls = false;
    std::shared_ptr<const void> prompt_hold;  // while it waits to be encoded
    std::optional<int64_t> fail_after;
    absl::Status late;
  };

  void Loop();
  void Plan(const engine::Request& request, const std::string& answer,
            const std::vector<kvcache::TokenId>& prompt, Running* running) const;
  // True when the stream has finished.
  bool Step(Running* running, std::chrono::steady_clock::time_point now) REFRAIN_REQUIRES(mutex_);

  const FakeEngineOptions options_;
  engine::ModelInfo model_;
  ByteTokenizer tokenizer_;
  std::unique_ptr<engine::ChatTemplate> chat_template_;

  mutable Mutex mutex_;
  engine::EngineStats counts_ REFRAIN_GUARDED_BY(mutex_);
  mutable ConditionVariable changed_;
  std::list<Running> running_ REFRAIN_GUARDED_BY(mutex_);
  std::set<std::vector<kvcache::TokenId>> seen_ REFRAIN_GUARDED_BY(mutex_);
  std::map<engine::PinId, engine::PinnedPrefix> pins_ REFRAIN_GUARDED_BY(mutex_);
  std::function<void()> on_pin_;
  std::function<void()> on_describe_;
  uint64_t next_pin_ REFRAIN_GUARDED_BY(mutex_) = 1;
  engine::Request last_request_ REFRAIN_GUARDED_BY(mutex_);
  absl::Status health_ REFRAIN_GUARDED_BY(mutex_);
  int submitted_ REFRAIN_GUARDED_BY(mutex_) = 0;
  int tokenized_ REFRAIN_GUARDED_BY(mutex_) = 0;
  int cancelled_ REFRAIN_GUARDED_BY(mutex_) = 0;
  bool draining_ REFRAIN_GUARDED_BY(mutex_) = false;
  bool stopping_ REFRAIN_GUARDED_BY(mutex_) = false;
  std::atomic<bool> looks_again_{false};  // before it waits: streams were cancelled
  std::thread thread_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_FAKE_ENGINE_H_
