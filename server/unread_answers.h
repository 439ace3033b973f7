#ifndef REFRAIN_SERVER_UNREAD_ANSWERS_H_
#define REFRAIN_SERVER_UNREAD_ANSWERS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>

#include "absl/status/status.h"
#include "engine/annotated_mutex.h"
#include "engine/token_stream.h"
#include "server/disposal.h"

namespace refrain::server {

// Bounds the memory of answers that clients do not read as fast as they are generated. The engine
// waits for nobody, so what a client has not read waits as tokens: 64 bytes each, and some 300 with
// 20 log-probabilities. One request for 128 choices that repeat a prompt of 2,000 tokens has 84 MB
// of them at once.
//
// As long as all answers together stay within the bound, nobody is cut, however slow. Beyond, one
// after the other is, until the rest fits:
//
// - of the owner (API key) whose answers take most;
// - of these the one whose client has read nothing for the longest time, if that is more than the
//   patience;
// - if all have read within these, the largest.
//
// So who floods the server without reading loses what it asked for, and who reads keeps it: a
// client that keeps up with the engine has next to nothing waiting, and answers of which no more
// than kSmallBytes waits, in all of their streams, count as nothing: these are bounded by the
// number of connections and calls.
//
// What counts is what waits in an engine::TokenStream, what was read of it last, and what its
// consumer says it keeps. What is cut counts no more, although it may take a moment until its
// connection ends. Any thread. Held by the streams that it counts, so it outlives its maker.
class UnreadAnswers : public std::enable_shared_from_this<UnreadAnswers> {
 public:
  static constexpr size_t kSmallBytes = 64 << 10;

  // `patience`: who has read within this time has not stopped reading.
  static std::shared_ptr<UnreadAnswers> Make(
      size_t most_bytes, std::chrono::milliseconds patience = std::chrono::milliseconds(10000)) {
    return std::shared_ptr<UnreadAnswers>(new UnreadAnswers(most_bytes, patience));
  }

  // Whether a stream that ended with `status` was cut.
  static bool IsCut(const absl::Status& status);

  // One answer, of as many streams as the request has prompts: they count together, and are cut
  // together. `owner` "" is nobody: all of these are one owner's.
  class Answer;
  std::shared_ptr<Answer> Begin(const std::string& owner);
  // From now on; `stream` is a consumer's handle, as the engine gives it.
  void Count(const std::shared_ptr<Answer>& answer,
             const std::shared_ptr<engine::TokenStream>& stream);

  // Where what is cut goes, and what else of an answer is large.
  const std::shared_ptr<Disposal>& disposal() const { return disposal_; }

  size_t bytes() const;  // that wait now
  int64_t cut() const { return cut_; }

 private:
  using Clock = std::chrono::steady_clock;
  class StreamAccount;

  UnreadAnswers(size_t most_bytes, std::chrono::milliseconds patience)
      : most_bytes_(most_bytes), patience_(patience) {}

  // Brings what counts of the answer up to date. True: they are too many.
  bool Update(Answer* answer, bool read);
  void Leave(Answer* answer);
  void SetLocked(Answer* answer, size_t bytes) REFRAIN_REQUIRES(mutex_);
  void MakeRoom();
  Answer* WorstLocked() const REFRAIN_REQUIRES(mutex_);
  absl::Status CutStatus(size_t bytes, Clock::duration unread) const;

  const size_t most_bytes_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<Disposal> disposal_ = std::make_shared<Disposal>();
  std::atomic<int64_t> cut_{0};
  mutable Mutex mutex_;  // taken under a stream's
  size_t bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;
  std::unordered_set<Answer*> answers_ REFRAIN_GUARDED_BY(mutex_);  // that have any bytes
  std::map<std::string, size_t> owned_ REFRAIN_GUARDED_BY(mutex_);  // by owner; none has 0
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_UNREAD_ANSWERS_H_
