#include "tests/support/fake_model_runner.h"

#include <set>
#include <utility>

#include "engine/sampler.h"

namespace refrain::testing {

using engine::StepBatch;
using engine::StepHandle;
using engine::StepResult;

std::vector<float> HashLogits(const std::vector<FakeKvCell>& history, int32_t vocab_size) {
  uint64_t hash = 1469598103934665603u;
  for (const FakeKvCell& cell : history) {
    hash = (hash ^ static_cast<uint64_t>(cell.token + 1)) * 1099511628211u;
    hash = (hash ^ static_cast<uint64_t>(cell.position + 1)) * 1099511628211u;
  }
  std::vector<float> logits;
  for (int32_t i = 0; i < vocab_size; ++i) {
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
    logits.push_back(static_cast<float>(hash % 4096) / 1024.0f);
  }
  return logits;
}

FakeModelRunner::FakeModelRunner(FakeChunkMover* memory, int32_t vocab_size, int max_in_flight)
    : memory_(memory), vocab_size_(vocab_size), max_in_flight_(max_in_flight) {
  logits_ = [vocab_size](const std::vector<FakeKvCell>& history) {
    return HashLogits(history, vocab_size);
  };
  memory_->before_copy = [this] { WaitUntilIdle(); };
  if (max_in_flight_ > 1) thread_ = std::thread([this] { Serve(); });
}

FakeModelRunner::~FakeModelRunner() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

StepHandle FakeModelRunner::Launch(const StepBatch& batch) {
  ++launched_;
  rows_ += static_cast<int64_t>(batch.tokens.size());
  if (launched_ - collected_ > static_cast<uint64_t>(max_in_flight_)) {
    Complain("more steps in flight than allowed");
  }
  if (const auto before = failures_.find(launched_ - 1);
      before != failures_.end() && launched_ - 1 > collected_) {
    failures_[launched_] = before->second;
  }
  const auto failure = failures_.find(launched_);
  Step step{launched_, batch, failure != failures_.end() ? failure->second : absl::OkStatus()};
  if (max_in_flight_ == 1) {
    done_.emplace(step.number, Run(step));
  } else {
    std::lock_guard lock(mutex_);
    to_do_.push_back(std::move(step));
    changed_.notify_all();
  }
  return StepHandle{launched_};
}

absl::StatusOr<StepResult> FakeModelRunner::Collect(StepHandle handle) {
  const auto number = static_cast<uint64_t>(handle);
  if (number != ++collected_) Complain("steps collected out of order");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_.contains(number); });
  return std::move(done_.extract(number).mapped());
}

void FakeModelRunner::Serve() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || !to_do_.empty(); });
    if (to_do_.empty()) return;
    Step step = std::move(to_do_.front());
    to_do_.pop_front();
    busy_ = true;
    lock.unlock();
    absl::StatusOr<StepResult> result = Run(step);
    lock.lock();
    done_.emplace(step.number, std::move(result));
    busy_ = false;
    changed_.notify_all();
  }
}

void FakeModelRunner::WaitUntilIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return to_do_.empty() && !busy_; });
}

void FakeModelRunner::Complain(std::string error) {
  std::lock_guard lock(mutex_);
  errors_.push_back(std::move(error));
}

std::vector<std::string> FakeModelRunner::errors() const {
  std::lock_guard lock(mutex_);
  return errors_;
}

std::vector<FakeKvCell> FakeModelRunner::History(const StepBatch& batch, int32_t slot,
                                                 int32_t length) {
  std::vector<FakeKvCell> history;
  const auto& plan = *batch.plan;
  for (const auto& run : plan.runs) {
    for (int32_t s = run.slot_begin; s < run.slot_end; ++s) {
      const auto& entry = plan.slots.at(static_cast<size_t>(s));
      if (entry.slot != slot) continue;
      if (entry.key_begin < length && entry.key_begin != static_cast<int32_t>(history.size())) {
        Complain("the runs of a slot have a gap or overlap");
      }
      for (int32_t c = run.chunk_begin; c < run.chunk_end; ++c) {
        const auto& chunk = plan.chunks.at(static_cast<size_t>(c));
        // A part-full chunk inside a run ends where the next one begins.
        const int32_t tokens =
            c + 1 < run.chunk_end
                ? plan.chunks.at(static_cast<size_t>(c) + 1).token_begin - chunk.token_begin
                : memory_->chunk_tokens();
        for (int32_t i = 0; i < tokens; ++i) {
          if (static_cast<int32_t>(history.size()) >= std::min(length, entry.key_end)) break;
          history.push_back(memory_->cell(chunk.chunk, i));
        }
      }
    }
  }
  if (static_cast<int32_t>(history.size()) != length) Complain("the plan misses keys of a slot");
  for (size_t i = 0; i < history.size(); ++i) {
    if (history[i].position != static_cast<int32_t>(i)) Complain("a key has a wrong position");
  }
  return history;
}

absl::StatusOr<StepResult> FakeModelRunner::Run(Step& step) {
  if (!step.failure.ok()) return step.failure;
  return Compute(step);
}

StepResult FakeModelRunner::Compute(Step& step) {
  StepBatch& batch = step.batch;
  if (before_step) before_step(batch);
  std::vector<int32_t> slot_of_row(batch.tokens.size(), -1);
  std::set<std::pair<int32_t, int32_t>> written;
  for (size_t slot = 0; slot < batch.slots.size(); ++slot) {
    const auto& entry = batch.slots[slot];
    for (int32_t i = 0; i < entry.num_rows; ++i) {
      const auto row = static_cast<size_t>(entry.row_begin) + static_cast<size_t>(i);
      if (slot_of_row.at(row) != -1) Complain("two slots claim one row");
      slot_of_row[row] = static_cast<int32_t>(slot);
    }
  }
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    if (slot_of_row[row] < 0) Complain("a row belongs to no slot");
    int32_t token = batch.tokens[row];
    if (token == StepBatch::kFromPreviousStep) {
      const auto before = sampled_before_.find(slot_of_row[row]);
      if (before == sampled_before_.end()) Complain("the step before sampled nothing for a slot");
      token = before == sampled_before_.end() ? 0 : before->second;
    }
    const auto& place = batch.destinations.at(row);
    if (place.chunk < 0) {  // not to be written: must be there already
      const int32_t index = batch.positions.at(row);
      if (History(batch, slot_of_row[row], index + 1).back() != FakeKvCell{token, index}) {
        Complain("a replayed token is not in the cache");
      }
      continue;
    }
    if (!written.insert({place.chunk, place.offset}).second) Complain("two rows in one place");
    memory_->cell(place.chunk, place.offset) = {token, batch.positions.at(row)};
  }
  sampled_before_.clear();
  StepResult result;
  int32_t last_row = -1;
  for (size_t i = 0; i < batch.logits.size(); ++i) {
    const engine::LogitsRow& wanted = batch.logits[i];
    if (wanted.row <= last_row) Complain("logits rows do not ascend");
    last_row = wanted.row;
    const int32_t slot = slot_of_row.at(static_cast<size_t>(wanted.row));
    if (slot != batch.logits_slots.at(i)) Complain("logits of a wrong slot");
    const auto& entry = batch.slots[static_cast<size_t>(slot)];
    const int32_t length = entry.key_end - entry.num_rows + (wanted.row - entry.row_begin) + 1;
    std::vector<float> logits = logits_(History(batch, slot, length));
    engine::SampledToken sampled;
    const std::vector<float> raw = logits;
    sampled.token = wanted.sampler != nullptr ? wanted.sampler->Sample(logits, &sampled.output)
                                              : wanted.prompt_next.value_or(engine::ArgMax(logits));
    if (wanted.top_logprobs.has_value() && sampled.token != engine::kNoToken) {
      engine::LogprobRow row = engine::ComputeLogprobs(raw, sampled.token, *wanted.top_logprobs);
      sampled.logprob = row.token;
      sampled.top = std::move(row.top);
    }
    if (wanted.sampler != nullptr) sampled_before_[slot] = static_cast<int32_t>(sampled.token);
    result.rows.push_back(std::move(sampled));
  }
  return result;
}

}  // namespace refrain::testing
