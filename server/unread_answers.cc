#include "server/unread_answers.h"

#include <algorithm>
#include <utility>

#include "server/concat.h"
#include "server/status_mapping.h"

namespace refrain::server {

// One stream's. What stands below Take belongs to UnreadAnswers and its lock.
class UnreadAnswers::Account final : public engine::StreamMemory {
 public:
  Account(std::shared_ptr<UnreadAnswers> all, std::weak_ptr<engine::TokenStream> stream,
          std::string owner)
      : owner(std::move(owner)), stream(std::move(stream)), all_(std::move(all)) {}
  ~Account() override { all_->Set(this, 0, /*read=*/false); }

  bool Take(size_t bytes, bool read) override {
    const bool is_small = bytes <= kSmallBytes;
    if (is_small && !counts_) return false;
    counts_ = !is_small;
    return all_->Set(this, is_small ? 0 : bytes, read);
  }
  void MakeRoom() override { all_->MakeRoom(); }

  const std::string owner;
  const std::weak_ptr<engine::TokenStream> stream;
  size_t bytes = 0;
  Clock::time_point last_read;  // or since when it has any bytes
  bool was_cut = false;

 private:
  const std::shared_ptr<UnreadAnswers> all_;
  bool counts_ = false;  // under the stream's lock
};

void UnreadAnswers::Count(const std::shared_ptr<engine::TokenStream>& stream,
                          const std::string& owner) {
  stream->CountIn(std::make_unique<Account>(shared_from_this(), stream, owner));
}

size_t UnreadAnswers::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

bool UnreadAnswers::Set(Account* account, size_t bytes, bool read) {
  MutexLock lock(mutex_);
  if (account->was_cut) return false;
  if (read || account->bytes == 0) account->last_read = Clock::now();
  SetLocked(account, bytes);
  return bytes_ > most_bytes_;
}

void UnreadAnswers::SetLocked(Account* account, size_t bytes) {
  if (account->bytes == bytes) return;
  bytes_ += bytes - account->bytes;
  const auto owned = owned_.try_emplace(account->owner, 0).first;
  owned->second += bytes - account->bytes;
  if (owned->second == 0) owned_.erase(owned);
  if (bytes == 0) {
    accounts_.erase(account);
  } else if (account->bytes == 0) {
    accounts_.insert(account);
  }
  account->bytes = bytes;
}

// As many as are behind by more than kSmallBytes are looked at for each that is cut: in all no more
// than they have taken memory for.
void UnreadAnswers::MakeRoom() {
  for (;;) {
    std::shared_ptr<engine::TokenStream> stream;
    absl::Status status;
    {
      MutexLock lock(mutex_);
      Account* const worst = bytes_ > most_bytes_ ? WorstLocked() : nullptr;
      if (worst == nullptr) return;
      status = CutStatus(worst->bytes, Clock::now() - worst->last_read);
      SetLocked(worst, 0);
      worst->was_cut = true;
      stream = worst->stream.lock();
    }
    if (stream == nullptr) continue;  // its client has gone
    ++cut_;
    stream->Cut(std::move(status));
  }
}

UnreadAnswers::Account* UnreadAnswers::WorstLocked() const {
  const auto most =
      std::max_element(owned_.begin(), owned_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const Clock::time_point patient = Clock::now() - patience_;
  const auto is_worse = [patient](const Account& a, const Account& b) {
    if (const bool gone = a.stream.expired(); gone != b.stream.expired()) return gone;
    const bool stalls = a.last_read < patient;
    if (stalls != (b.last_read < patient)) return stalls;
    return stalls ? a.last_read < b.last_read : a.bytes > b.bytes;
  };
  Account* worst = nullptr;
  for (Account* const account : accounts_) {
    if (account->owner != most->first) continue;
    if (worst == nullptr || is_worse(*account, *worst)) worst = account;
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
      "answer_not_read");
}

}  // namespace refrain::server
