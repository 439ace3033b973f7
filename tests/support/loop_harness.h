#ifndef REFRAIN_TESTS_SUPPORT_LOOP_HARNESS_H_
#define REFRAIN_TESTS_SUPPORT_LOOP_HARNESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_loop.h"
#include "engine/grammar/output_constrainer.h"
#include "engine/prompt_encoder.h"
#include "tests/support/fake_chunk_mover.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_model_runner.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::testing {

struct LoopOptions {
  int32_t num_chunks = 256;
  int32_t chunk_tokens = 16;
  int32_t max_sequences = 8;
  int32_t step_token_budget = 32;
  int32_t max_context_tokens = 512;
  int max_in_flight = 1;
  bool prefix_cache = true;
  bool isolate_tenants = false;
  std::string eviction = "reuse_rate";
  engine::Policy policy = engine::Policy::kFcfs;
  int32_t ageing_steps = engine::SchedulerLimits{}.ageing_steps;
  int32_t queued_requests = 1000;
  int64_t queued_tokens = 1 << 20;
  double stall_s = 0;
  engine::PlanFunction planner = &engine::Plan;
  engine::EngineObserver* observer = nullptr;
  std::vector<std::string> vocabulary = LetterVocabulary();
};

// Everything that a consumer read of one choice.
struct ChoiceOutput {
  std::vector<int32_t> tokens;
  std::string text;
  std::vector<engine::TokenEvent> prompt;
  std::vector<engine::TokenEvent> events;
  std::vector<engine::ChoiceEnd> ends;
};

struct RequestOutput {
  std::map<int32_t, ChoiceOutput> choices;
  bool finished = false;
  absl::Status status;
  engine::Usage usage;
};

// Reads what there is, adding to `output`; checks that nothing comes after an end.
void ReadInto(engine::TokenStream& stream, const FakeTokenizer& tokenizer, RequestOutput* output);

// Ids for a prompt; those of other seeds begin differently.
std::vector<int32_t> Prompt(int32_t length, int32_t seed = 1);

// A request for a prompt of ids, greedy.
engine::Request TokenRequest(const std::vector<int32_t>& prompt, int32_t max_tokens);

// An engine loop over fakes, turned by the test. Single-threaded but for an asynchronous runner.
class LoopHarness {
 public:
  explicit LoopHarness(const LoopOptions& options = {});
  ~LoopHarness();

  // Encodes at once and puts it into the queue. The handle's loss cancels.
  std::shared_ptr<engine::TokenStream> Submit(engine::Request request);
  absl::Status submit_status() const { return submit_status_; }
  // Turns until nothing is left to do; fails the test when it takes too long.
  void RunUntilIdle();
  RequestOutput Read(const std::shared_ptr<engine::TokenStream>& stream);
  RequestOutput Run(engine::Request request);
  // Nothing leaked, nothing broken.
  void CheckIdle();

  LoopOptions options;
  FakeChunkMover memory;
  FakeModelRunner runner;
  FakeTokenizer tokenizer{options.vocabulary};
  FakeClock clock;
  std::unique_ptr<kvcache::CacheManager> cache;
  std::shared_ptr<engine::AdmissionLedger> ledger;
  std::shared_ptr<engine::RequestQueue> queue = std::make_shared<engine::RequestQueue>();
  engine::OutputConstrainer constrainer{&tokenizer, tokenizer.vocab_size()};
  engine::PromptEncoder encoder;
  engine::EngineLoop loop;

 private:
  uint64_t next_number_ = 1;
  absl::Status submit_status_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_LOOP_HARNESS_H_
