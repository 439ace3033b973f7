#ifndef REFRAIN_TESTS_TOOLS_LOADGEN_LOAD_RUN_FAKES_H_
#define REFRAIN_TESTS_TOOLS_LOADGEN_LOAD_RUN_FAKES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/loadgen/load_run.h"

namespace refrain::loadgen {

// An event loop whose time jumps to the next call.
class FakeLoop final : public EventLoop {
 public:
  double NowS() const override { return now_s_; }
  void CallAt(double at_s, std::function<void()> call) override {
    calls_.emplace(std::max(at_s, now_s_), std::move(call));
  }
  void Post(std::function<void()> call) override { CallAt(now_s_, std::move(call)); }
  void Run() override {
    stopped_ = false;
    while (!stopped_ && !calls_.empty()) {
      now_s_ = std::max(now_s_, calls_.begin()->first);
      const auto call = std::move(calls_.begin()->second);
      calls_.erase(calls_.begin());
      call();
    }
    starved_ = !stopped_;
    calls_.clear();
  }
  void Stop() override { stopped_ = true; }

  // Work that keeps the loop from all else.
  void Block(double seconds) { now_s_ += seconds; }
  bool starved() const { return starved_; }  // ended without Stop: the run forgot something

 private:
  double now_s_ = 100;
  bool stopped_ = false;
  bool starved_ = false;
  std::multimap<double, std::function<void()>> calls_;
};

// A server that works on one request at a time, each for `service_s`, and answers in two tokens.
class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(FakeLoop* loop) : loop_(loop) {}

  std::string Encode(const GenerationRequest& request) const override {
    forms.push_back(request.form);
    std::string text;
    for (const int32_t id : request.token_ids) text += std::to_string(id) + " ";
    text += request.text;
    for (const ChatMessage& message : request.messages) {
      text += message.role + ":" + message.content + " ";
    }
    if (request.wants_token_ids) text += "ids ";
    return text;
  }

  void Start(std::string encoded, AnswerSink* sink) override {
    sent.push_back({loop_->NowS(), encoded});
    const size_t number = sent.size();
    running_[number] = sink;
    most_running = std::max(most_running, running_.size());
    if (number == hang_number) return;
    if (number == stall_number) free_at_s_ = loop_->NowS() + stall_s;
    free_at_s_ = std::max(free_at_s_, loop_->NowS()) + service_s;
    loop_->CallAt(free_at_s_, [this, number] { Answer(number); });
  }

  void CancelAll() override {
    for (const auto& [number, sink] : std::exchange(running_, {})) {
      AnswerEnd end;
      end.failure = Failure{"unfinished", ""};
      sink->OnEnd(loop_->NowS(), end);
    }
  }

  struct Sent {
    double at_s;
    std::string encoded;
  };
  std::vector<Sent> sent;
  mutable std::vector<PromptForm> forms;  // of what was encoded
  double service_s = 0.01;
  size_t stall_number = 0;  // the server stalls when this one comes
  double stall_s = 0;
  size_t hang_number = 0;  // never answered
  size_t fail_number = 0;
  std::set<size_t> refused;  // with refused_kind and retry_after_s
  std::string refused_kind = "http_429";
  std::optional<double> retry_after_s;
  bool gives_ids = true;
  int32_t first_tokens = 1;            // in an answer's first event; one more follows
  std::optional<int32_t> told_tokens;  // by usage
  double textless_s = 0;               // of nine more tokens without text, then the end
  double held_back_s = 0;              // until text comes that is no token's
  size_t most_running = 0;
  size_t running() const { return running_.size(); }

 private:
  void Answer(size_t number) {
    const auto found = running_.find(number);
    if (found == running_.end()) return;
    AnswerSink* sink = found->second;
    running_.erase(found);
    const std::vector<int32_t> ids = gives_ids ? std::vector<int32_t>{90} : std::vector<int32_t>{};
    AnswerEnd end;
    if (number == fail_number) {
      end.failure = Failure{"http_500", "asked to"};
    } else if (refused.count(number) > 0) {
      end.failure = Failure{refused_kind, "asked to"};
      end.retry_after_s = retry_after_s;
    } else {
      sink->OnTokens(loop_->NowS(), first_tokens, "A", ids);
      sink->OnTokens(loop_->NowS(), 1, "B", ids);
      if (held_back_s > 0) {
        loop_->Block(held_back_s);
        sink->OnTokens(loop_->NowS(), 0, "C", {});
      }
    }
    if (textless_s > 0) {
      loop_->Block(textless_s);
      end.output_tokens = first_tokens + 10;
      end.finished_s = loop_->NowS();
      loop_->Block(1);  // to the end of the connection, which is no token's time
    }
    if (told_tokens.has_value()) end.output_tokens = told_tokens;
    sink->OnEnd(loop_->NowS(), end);
  }

  FakeLoop* const loop_;
  double free_at_s_ = 0;
  std::map<size_t, AnswerSink*> running_;
};

class FakeWorkload final : public Workload {
 public:
  explicit FakeWorkload(std::vector<Session> sessions) : sessions_(std::move(sessions)) {}

  absl::StatusOr<std::optional<Session>> Next() override {
    if (next_ == fail_at) return absl::InvalidArgumentError("line 3 is odd");
    if (next_ == sessions_.size()) return std::optional<Session>();
    return std::optional<Session>(sessions_[next_++]);
  }
  size_t fail_at = SIZE_MAX;

 private:
  std::vector<Session> sessions_;
  size_t next_ = 0;
};

inline std::vector<Session> Sessions(int count, int turns = 1, double think_s = 0) {
  std::vector<Session> sessions;
  for (int i = 0; i < count; ++i) {
    Session& session = sessions.emplace_back();
    for (int turn = 0; turn < turns; ++turn) {
      session.turns.push_back({.token_ids = {i, turn}, .think_s = turn == 0 ? 0 : think_s});
    }
  }
  return sessions;
}

inline std::vector<Session> SessionsAt(const std::vector<double>& starts_s) {
  std::vector<Session> sessions = Sessions(static_cast<int>(starts_s.size()));
  for (size_t i = 0; i < starts_s.size(); ++i) sessions[i].start_s = starts_s[i];
  return sessions;
}

struct Ran {
  absl::Status status;
  RunResult result;
};
inline Ran RunLoad(const LoadOptions& options, Workload* workload, FakeBackend* backend,
                   FakeLoop* loop) {
  Recorder recorder{Slo{}};
  LoadRun run(options, workload, backend, loop, &recorder);
  const absl::Status status = run.Run();
  EXPECT_FALSE(loop->starved());
  return {status, recorder.Finish(run.begin_s())};
}

inline const Summary& Of(const Ran& ran, Metric metric) {
  return ran.result.metrics[static_cast<size_t>(metric)];
}

inline constexpr ArrivalOptions kTenPerSecond = {.law = ArrivalLaw::kConstant, .rate_per_s = 10};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TESTS_TOOLS_LOADGEN_LOAD_RUN_FAKES_H_
