#ifndef REFRAIN_ENGINE_ENCODE_POOL_H_
#define REFRAIN_ENGINE_ENCODE_POOL_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/annotated_mutex.h"
#include "engine/clock.h"
#include "engine/encoded_request.h"
#include "engine/prompt_encoder.h"
#include "engine/slice_turns.h"
#include "engine/tenant_queue.h"

namespace refrain::engine {

// Renders templates and tokenizes, away from the I/O threads and the engine thread.
//
// Two lanes: `threads` threads render requests and tokenize the short ones; texts of which more
// than kLongTextBytes were not tokenized before (StretchMemo), conversations of very many messages,
// and requests of which the output has a form that is yet to be made a grammar of, go to threads of
// their own, which work one at a time, in slices of kSlice. While sequences run there are rests
// between the slices, so that a prompt of 1 MB holds up neither a short one nor running streams
// (docs/results/encode-gap.md): of kRest, or of kShortRest while another long text waits. In both
// lanes tenants take turns, with short texts and with slices of long ones, so that neither one with
// a thousand prompts nor one with a book holds up another's: a long text takes a few times as long
// as alone, whatever others sent. Of those that wait for a thread a tenant may have as many in work
// as it leaves threads free, and of more than kLargeTextBytes, which take memory, one, all tenants
// together kMostLargeTexts.
//
// A request that is cancelled or out of time leaves its lane within kSweepPeriod, whatever is in
// work before it: one more thread per lane looks, while more requests wait there than threads do. A
// text that cannot fit into the context goes no further than the first lane. What fails finishes
// its stream, with RESOURCE_EXHAUSTED where the system refuses memory, and so does what
// only_tokenize asks for. Any thread may Push. Stop ends the threads
// after what they are doing; what still waits is finished as CANCELLED.
class EncodePool {
 public:
  static constexpr size_t kLongTextBytes = 64 * 1024;
  static constexpr int kLongTextThreads = 8;
  static constexpr size_t kLargeTextBytes = 1 << 20;
  static constexpr size_t kMostLargeTexts = 3;
  static constexpr std::chrono::microseconds kSlice{300};
  static constexpr std::chrono::microseconds kRest{20'000};
  static constexpr std::chrono::microseconds kShortRest{10'000};
  static constexpr std::chrono::milliseconds kSweepPeriod{20};
  using Sink = std::function<void(std::unique_ptr<EncodedRequest>)>;

  // `sink` gets the encoded requests, on the pool's threads, which also ask `engine_is_busy`: are
  // sequences running? `encoder` and `clock` outlive the pool. Throws std::system_error where the
  // system refuses a thread.
  EncodePool(const PromptEncoder* encoder, const Clock* clock, int32_t threads, Sink sink,
             std::function<bool()> engine_is_busy);
  ~EncodePool() { Stop(); }

  void Push(std::unique_ptr<EncodedRequest> request);
  // Ends what came of the tenants before, with a lower number than `before`: at once what waits,
  // what a thread works on at the end of its slice or step. How many waited.
  int32_t EndWaiting(const std::unordered_set<std::string>& tenants, uint64_t before,
                     const absl::Status& reason);
  void Stop();

 private:
  struct Job {
    std::unique_ptr<EncodedRequest> request;
    bool rendered = false;
    std::optional<PromptText> text;
    // The tenant among those in work, as long as a thread of the long lane has it; null: there was
    // no memory to count it.
    const std::string* counted_for = nullptr;

    const std::string& tenant() const { return request->request.tenant; }
    bool is_large() const { return text.has_value() && text->text.size() > kLargeTextBytes; }
  };
  // The long texts that threads have taken on. No locks inside.
  class InWork {
   public:
    bool MayBegin(const std::string& tenant, const Job& job, size_t idle_threads) const;
    // Whom it counts for, until End.
    const std::string* BeginOrNull(const Job& job);
    void End(const std::string& tenant, bool large);

   private:
    struct Texts {
      size_t all = 0;
      size_t large = 0;
    };
    std::unordered_map<std::string, Texts> by_tenant_;  // of those who have any
    size_t large_ = 0;
  };
  // Jobs of one kind and who does them.
  struct Lane {
    const bool is_long;
    Mutex mutex;
    ConditionVariable changed;
    ConditionVariable crowded;
    TenantQueue<Job> jobs REFRAIN_GUARDED_BY(mutex);
    size_t idle_threads REFRAIN_GUARDED_BY(mutex) = 0;
    InWork in_work REFRAIN_GUARDED_BY(mutex);
    std::atomic<bool> stopped = false;  // written under the mutex

    explicit Lane(bool holds_long_texts) : is_long(holds_long_texts) {}
    void Push(Job job);
    std::optional<Job> WaitAndPop();  // nothing: stopped
    // What WaitAndPop of a long lane gave is done.
    void Done(const std::string& tenant, bool large);
    bool AnyWaits();
    // Until jobs wait that no thread is about to take; false: stopped.
    bool WaitUntilCrowded();
    void Stop();
  };

  // The last of a tenant's ends.
  struct TenantsEnd {
    uint64_t before = 0;
    absl::Status reason;
  };

  class LongTextPace;
  class ShortTextPace;

  void Serve(Lane* lane);
  void Sweep(Lane* lane);
  void Render(Job job);
  void WorkInSlices(Job job);
  void RenderInSlices(Job job);
  // Until it is the job's turn, or nobody wants it. False: it has ended for want of memory.
  bool TakeTurn(Job* job, std::optional<LongTextPace>* pace);
  static void EndWithoutMemory(Job* job);
  // False: it has ended, with its reason.
  bool RenderText(Job* job, EncodePace* pace);
  void Tokenize(Job job, EncodePace* pace);
  void TokenizeOnly(const Job& job, EncodePace* pace);
  // Why it is not to go on; OK: it is.
  absl::Status EndOf(const EncodedRequest& request) const;
  bool SkipEnded(EncodedRequest& request) const;

  const PromptEncoder* encoder_;
  const Clock* clock_;
  Sink sink_;
  std::function<bool()> engine_is_busy_;
  Lane short_lane_{false};
  Lane long_lane_{true};
  SliceTurns turns_;  // of the long lane's threads
  mutable Mutex ends_mutex_;
  std::unordered_map<std::string, TenantsEnd> ends_ REFRAIN_GUARDED_BY(ends_mutex_);
  std::vector<std::thread> threads_;
};

// Why a request ends when its deadline has passed.
absl::Status DeadlineStatus(const EncodedRequest& request);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENCODE_POOL_H_
