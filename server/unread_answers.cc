#include "server/unread_answers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/concat.h"
#include "server/status_mapping.h"

namespace refrain::server {
namespace {

constexpr char kCutCode[] = "answer_not_read";

}  // namespace

// What stands below `total` is under the lock of UnreadAnswers.
class UnreadAnswers::Answer {
 public:
  Answer(std::shared_ptr<UnreadAnswers> all, std::string owner)
      : all(std::move(all)), owner(std::move(owner)) {}
  ~Answer() { all->Leave(this); }

  const std::shared_ptr<UnreadAnswers> all;
  const std::string owner;
  std::atomic<size_t> total{0};     // of all of its streams
  std::atomic<bool> counts{false};  // `bytes` is not 0; written under the lock
  std::vector<std::weak_ptr<engine::TokenStream>> streams;
  size_t bytes = 0;
  Clock::time_point last_read;  // or since when it has any bytes
  bool was_cut = false;

  bool IsGone() const {
    return std::all_of(streams.begin(), streams.end(),
                       [](const auto& stream) { return stream.expired(); });
  }
};

// One stream's part of an answer.
class UnreadAnswers::StreamAccount final : public engine::StreamMemory {
 public:
  explicit StreamAccount(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  ~StreamAccount() override { Take(0, /*read=*/false); }

  // Small amounts cost no lock that others take.
  bool Take(size_t bytes, bool read) override {
    const size_t more = bytes - std::exchange(bytes_, bytes);  // modulo 2^64: may be less
    const size_t total = answer_->total.fetch_add(more) + more;
    if (total <= kSmallBytes && !answer_->counts) return false;
    return answer_->all->Update(answer_.get(), read);
  }
  void MakeRoom() override { answer_->all->MakeRoom(); }

 private:
  const std::shared_ptr<Answer> answer_;
  size_t bytes_ = 0;  // under the stream's lock
};

bool UnreadAnswers::IsCut(const absl::Status& status) {
  return !status.ok() && ApiErrorFromStatus(status).code == kCutCode;
}

std::shared_ptr<UnreadAnswers::Answer> UnreadAnswers::Begin(const std::string& owner) {
  return std::make_shared<Answer>(shared_from_this(), owner);
}

void UnreadAnswers::Count(const std::shared_ptr<Answer>& answer,
                          const std::shared_ptr<engine::TokenStream>& stream) {
  {
    MutexLock lock(mutex_);
    answer->streams.push_back(stream);
  }
  stream->CountIn(std::make_unique<StreamAccount>(answer));
}

size_t UnreadAnswers::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

bool UnreadAnswers::Update(Answer* answer, bool read) {
  MutexLock lock(mutex_);
  if (answer->was_cut) return false;
  if (read || answer->bytes == 0) answer->last_read = Clock::now();
  // As it is now: others of its streams may have changed it since.
  const size_t total = answer->total;
  SetLocked(answer, total <= kSmallBytes ? 0 : total);
  return bytes_ > most_bytes_;
}

void UnreadAnswers::Leave(Answer* answer) {
  MutexLock lock(mutex_);
  SetLocked(answer, 0);
}

void UnreadAnswers::SetLocked(Answer* answer, size_t bytes) {
  if (answer->bytes == bytes) return;
  const auto owned = owned_.try_emplace(answer->owner, 0).first;
  if (bytes == 0) {
    answers_.erase(answer);
  } else if (answer->bytes == 0) {
    answers_.insert(answer);
  }
  bytes_ += bytes - answer->bytes;
  owned->second += bytes - answer->bytes;
  if (owned->second == 0) owned_.erase(owned);
  answer->bytes = bytes;
  answer->counts = bytes > 0;
}

// As many as are behind by more than kSmallBytes are looked at for each that is cut: in all no more
// than they have taken memory for.
void UnreadAnswers::MakeRoom() {
  for (;;) {
    std::vector<std::shared_ptr<engine::TokenStream>> streams;
    absl::Status status;
    {
      MutexLock lock(mutex_);
      Answer* const worst = bytes_ > most_bytes_ ? WorstLocked() : nullptr;
      if (worst == nullptr) return;
      status = CutStatus(worst->bytes, Clock::now() - worst->last_read);
      SetLocked(worst, 0);
      worst->was_cut = true;
      for (const auto& stream : worst->streams) streams.push_back(stream.lock());
    }
    std::erase(streams, nullptr);
    if (streams.empty()) continue;  // its client has gone
    ++cut_;
    for (const auto& stream : streams) disposal_->TakeTokens(stream->Cut(status).tokens);
  }
}

UnreadAnswers::Answer* UnreadAnswers::WorstLocked() const {
  const auto most =
      std::max_element(owned_.begin(), owned_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const Clock::time_point patient = Clock::now() - patience_;
  const auto is_worse = [patient](const Answer& a, const Answer& b) {
    if (const bool gone = a.IsGone(); gone != b.IsGone()) return gone;
    const bool stalls = a.last_read < patient;
    if (stalls != (b.last_read < patient)) return stalls;
    return stalls ? a.last_read < b.last_read : a.bytes > b.bytes;
  };
  Answer* worst = nullptr;
  for (Answer* const answer : answers_) {
    if (answer->owner != most->first) continue;
    if (worst == nullptr || is_worse(*answer, *worst)) worst = answer;
  }
  return worst;
}

absl::Status UnreadAnswers::CutStatus(size_t bytes, Clock::duration unread) const {
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(unread).count();
  return WithCode(
      absl::UnavailableError(Concat("the answer is cut: ", bytes,
                                    " bytes of it wait, nothing of them was read for ", ms,
                                    " ms, and the answers that are not read take more than ",
                                    most_bytes_, " bytes (limits.unread_bytes)")),
      kCutCode);
}

}  // namespace refrain::server
