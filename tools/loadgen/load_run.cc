#include "tools/loadgen/load_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/conversation.h"

namespace refrain::loadgen {
namespace {

constexpr double kProgressS = 0.2;
// Of a user that was turned away: doubled with each time in a row, where nobody said how long.
constexpr double kFirstPauseS = 0.05;
constexpr double kLongestPauseS = 1;
constexpr double kLongestToldPauseS = 60;

// Without an answer's work having begun. Who came again at once would have nothing measured but
// this.
bool IsTurnedAway(const std::optional<Failure>& failure) {
  constexpr const char* kKinds[] = {"connection_refused", "http_429", "http_503",
                                    "grpc_RESOURCE_EXHAUSTED", "grpc_UNAVAILABLE"};
  return failure.has_value() &&
         std::find(std::begin(kKinds), std::end(kKinds), failure->kind) != std::end(kKinds);
}

double PauseS(int32_t times, std::optional<double> told_s) {
  if (told_s.value_or(0) > 0) return std::min(*told_s, kLongestToldPauseS);
  return std::min(kLongestPauseS, std::ldexp(kFirstPauseS, std::min(times, 16) - 1));
}

}  // namespace

class LoadRun::State {
 public:
  State(const LoadOptions& options, Workload* workload, Backend* backend, EventLoop* loop,
        Recorder* recorder)
      : options_(options),
        workload_(workload),
        backend_(backend),
        loop_(loop),
        recorder_(recorder) {}

  // What is under way ends as unfinished. Posted: whoever calls may be inside the back end.
  void Abort(const absl::Status& why) {
    if (status_.ok()) status_ = why;
    no_more_sessions_ = true;
    stopping_ = true;
    if (std::exchange(aborted_, true)) return;
    loop_->Post([this] { GiveUpAll(); });
  }

  absl::Status Run() {
    if (options_.kind == LoopKind::kOpen) {
      absl::StatusOr<Arrivals> arrivals = Arrivals::Make(options_.arrivals);
      if (!arrivals.ok()) return arrivals.status();
      arrivals_.emplace(*std::move(arrivals));
    }
    begin_s_ = loop_->NowS();
    loop_->Post([this] { Begin(); });
    if (on_progress_) TickProgress();
    loop_->Run();
    conversations_.clear();
    return status_;
  }

  std::function<void(double)> on_progress_;
  double begin_s_ = 0;
  bool ran_out_ = false;

 private:
  void Begin() {
    if (options_.duration_s > 0) {
      loop_->CallAt(begin_s_ + options_.duration_s, [this] {
        Drain();
        StopWhenIdle();
      });
    }
    if (options_.kind == LoopKind::kClosed) {
      for (int32_t user = 0; user < options_.users && !no_more_sessions_; ++user) {
        BeginSession(loop_->NowS(), /*turned_away=*/0);
      }
    } else {
      PlanArrival();
    }
    StopWhenIdle();
  }

  void TickProgress() {
    on_progress_(loop_->NowS() - begin_s_);
    loop_->CallAt(loop_->NowS() + kProgressS, [this] { TickProgress(); });
  }

  // The next session, with its first request encoded; null when there is none.
  Conversation* MakeConversation(std::optional<double>* start_s) {
    if (options_.most_requests > 0 && planned_ >= options_.most_requests) {
      // What the workload has beyond that is the next run's, and nothing that it lacks is missed.
      Drain();
      return nullptr;
    }
    absl::StatusOr<std::optional<Session>> session = workload_->Next();
    if (!session.ok()) {
      Fail(session.status());
      return nullptr;
    }
    if (!session->has_value()) {
      no_more_sessions_ = true;
      ran_out_ = !stopping_;
      return nullptr;
    }
    const PromptForm form = (*session)->form.value_or(options_.form);
    if (!FitsForm(form, **session)) return nullptr;
    *start_s = (*session)->start_s;
    auto made = std::make_unique<Conversation>(
        **std::move(session), Conversation::Requests{form, options_.sets_most_tokens}, backend_,
        recorder_, [this](Conversation* c) { OnEnded(c); });
    Conversation* conversation = made.get();
    conversations_[conversation] = std::move(made);
    still_to_send_.insert(conversation);
    conversation->Prepare();
    return conversation;
  }

  bool FitsForm(PromptForm form, const Session& session) {
    const bool wants_ids = form == PromptForm::kTokenIds;
    for (const Turn& turn : session.turns) {
      if (wants_ids ? !turn.token_ids.empty() : !turn.messages.empty()) continue;
      Fail(absl::InvalidArgumentError(
          wants_ids ? "the workload has text, which --prompt-form=token_ids cannot send"
                    : "the workload has token ids, which only --prompt-form=token_ids can send"));
      return false;
    }
    return true;
  }

  void PlanArrival() {
    std::optional<double> start_s;
    Conversation* conversation = MakeConversation(&start_s);
    if (conversation == nullptr) return;
    double arrival_s = 0;
    if (options_.kind == LoopKind::kOpen) {
      arrival_s = arrivals_->Next();
    } else {
      if (!start_s.has_value()) {
        Erase(conversation);
        Fail(absl::InvalidArgumentError("this workload says no times: it cannot be replayed"));
        return;
      }
      if (!first_start_s_.has_value()) first_start_s_ = *start_s;
      arrival_s = (*start_s - *first_start_s_) / options_.trace_speed;
      if (*start_s < last_start_s_) {
        Erase(conversation);
        Fail(absl::InvalidArgumentError(
            absl::StrCat("a session that starts at ", *start_s, " s comes behind one at ",
                         last_start_s_, " s: sort the workload by time to replay it")));
        return;
      }
      last_start_s_ = *start_s;
    }
    if (!Plan(conversation, begin_s_ + arrival_s)) return;
    loop_->CallAt(begin_s_ + arrival_s, [this, conversation] {
      Send(conversation);
      if (!no_more_sessions_) PlanArrival();
      StopWhenIdle();
    });
  }

  // `turned_away`: so often in a row its user was.
  void BeginSession(double planned_s, int32_t turned_away) {
    std::optional<double> start_s;
    Conversation* conversation = MakeConversation(&start_s);
    if (conversation == nullptr || !Plan(conversation, planned_s)) return;
    if (turned_away > 0) turned_away_[conversation] = turned_away;
    Send(conversation);
  }

  // Of the user whose conversation has ended.
  void BeginNextSession(Conversation* ended) {
    const double end_s = ended->end_s();
    const auto before = turned_away_.find(ended);
    const int32_t times = !IsTurnedAway(ended->failure()) ? 0
                          : before == turned_away_.end()  ? 1
                                                          : before->second + 1;
    const std::optional<double> told_s = ended->retry_after_s();
    Erase(ended);
    if (no_more_sessions_) return;
    const bool all_planned = options_.most_requests > 0 && planned_ >= options_.most_requests;
    if (times == 0 || all_planned) return BeginSession(end_s, times);
    const double planned_s = end_s + PauseS(times, told_s);
    loop_->CallAt(planned_s, [this, planned_s, times] {
      if (!no_more_sessions_) BeginSession(planned_s, times);
      StopWhenIdle();
    });
  }

  // False, and the conversation is over, when the request is beyond this run's limits.
  bool Plan(Conversation* conversation, double planned_s) {
    const bool too_many = options_.most_requests > 0 && planned_ >= options_.most_requests;
    const bool too_late = options_.duration_s > 0 && planned_s >= begin_s_ + options_.duration_s;
    if (stopping_ || too_many || too_late) {
      Erase(conversation);
      if (too_many) Drain();
      return false;
    }
    ++planned_;
    last_planned_s_ = std::max(last_planned_s_, planned_s);
    conversation->Plan(planned_s);
    return true;
  }

  // The last request has been planned; it may be due much later.
  void Drain() {
    no_more_sessions_ = true;
    if (stopping_) return;
    stopping_ = true;
    loop_->CallAt(std::max(loop_->NowS(), last_planned_s_) + options_.drain_s,
                  [this] { GiveUpAll(); });
  }

  void GiveUpAll() {
    // Those that wait for their turn to be sent are unfinished, too.
    for (Conversation* conversation : std::exchange(waiting_, {})) {
      conversation->GiveUp(loop_->NowS(), {"unfinished", "the run ended before it was sent"});
    }
    backend_->CancelAll();
    conversations_.clear();  // those that are still thinking
    loop_->Stop();
  }

  void Erase(Conversation* conversation) {
    turned_away_.erase(conversation);
    still_to_send_.erase(conversation);
    conversations_.erase(conversation);
  }

  void Send(Conversation* conversation) {
    if (!conversation->has_more_turns()) still_to_send_.erase(conversation);
    if (options_.most_in_flight > 0 && recorder_->in_flight() >= options_.most_in_flight) {
      waiting_.push_back(conversation);
      return;
    }
    conversation->Send(loop_->NowS());
  }

  void OnEnded(Conversation* conversation) {
    if (!waiting_.empty()) {
      Conversation* next = waiting_.front();
      waiting_.pop_front();
      next->Send(loop_->NowS());
    }
    if (conversation->lacks_answer_ids()) {
      Abort(absl::FailedPreconditionError(
          "the server's answers carry no token ids (return_token_ids), so that a conversation of "
          "token ids cannot go on; use --prompt-form=text or chat"));
    }
    const double end_s = conversation->end_s();
    if (!conversation->failed() && !stopping_ && conversation->Prepare()) {
      turned_away_.erase(conversation);
      const double planned_s = end_s + conversation->think_s();
      if (Plan(conversation, planned_s)) {
        loop_->CallAt(planned_s, [this, conversation] {
          Send(conversation);
          StopWhenIdle();
        });
      }
    } else if (options_.kind == LoopKind::kClosed) {
      BeginNextSession(conversation);
    } else {
      Erase(conversation);
    }
    StopWhenIdle();
  }

  // The workload cannot go on: what is under way may end.
  void Fail(const absl::Status& status) {
    if (status_.ok()) status_ = status;
    Drain();
  }

  void StopWhenIdle() {
    if (!no_more_sessions_) return;
    if (conversations_.empty()) {
      loop_->Stop();
    } else if (still_to_send_.empty()) {
      Drain();  // the workload has ended
    }
  }

  const LoadOptions options_;
  Workload* const workload_;
  Backend* const backend_;
  EventLoop* const loop_;
  Recorder* const recorder_;
  absl::Status status_;
  std::optional<Arrivals> arrivals_;
  std::optional<double> first_start_s_;
  double last_start_s_ = 0;
  int64_t planned_ = 0;
  double last_planned_s_ = 0;
  bool no_more_sessions_ = false;
  bool stopping_ = false;  // no request is planned any more
  bool aborted_ = false;
  std::unordered_map<Conversation*, std::unique_ptr<Conversation>> conversations_;
  std::unordered_map<Conversation*, int32_t> turned_away_;  // its user, so often in a row before it
  std::unordered_set<Conversation*> still_to_send_;  // those whose last request is not due yet
  std::deque<Conversation*> waiting_;                // for one in flight to end
};

LoadRun::LoadRun(const LoadOptions& options, Workload* workload, Backend* backend, EventLoop* loop,
                 Recorder* recorder)
    : state_(std::make_unique<State>(options, workload, backend, loop, recorder)) {}
LoadRun::~LoadRun() = default;

void LoadRun::OnProgress(std::function<void(double)> call) {
  state_->on_progress_ = std::move(call);
}
absl::Status LoadRun::Run() { return state_->Run(); }
void LoadRun::Abort(const absl::Status& why) { state_->Abort(why); }
bool LoadRun::ran_out() const { return state_->ran_out_; }
double LoadRun::begin_s() const { return state_->begin_s_; }

}  // namespace refrain::loadgen
