#include "tools/loadgen/metrics_watch.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "engine/annotated_mutex.h"
#include "tools/loadgen/http_fetch.h"

namespace refrain::loadgen {

std::map<std::string, MetricValue> ReadPrometheusText(std::string_view text) {
  std::map<std::string, MetricValue> values;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    const size_t name_end = line.find_first_of("{ ");
    if (name_end == std::string_view::npos) continue;
    size_t value_begin = name_end;
    if (line[name_end] == '{') {
      // A label's value may hold a brace: the last one ends the labels.
      const size_t labels_end = line.rfind('}');
      if (labels_end == std::string_view::npos) continue;
      value_begin = labels_end + 1;
    }
    std::string_view value_text = line.substr(value_begin);
    while (value_text.starts_with(' ')) value_text.remove_prefix(1);
    value_text = value_text.substr(0, value_text.find(' '));  // a time stamp may follow
    double value = 0;
    if (!absl::SimpleAtod(std::string(value_text), &value)) continue;
    const auto [known, is_new] =
        values.try_emplace(std::string(line.substr(0, name_end)), MetricValue{value, value});
    if (is_new) continue;
    known->second.sum += value;
    known->second.highest = std::max(known->second.highest, value);
  }
  return values;
}

Gauge ParseGauge(std::string_view text) {
  constexpr std::string_view kHighest = "max:";
  const bool highest = text.starts_with(kHighest);
  return {.name = std::string(highest ? text.substr(kHighest.size()) : text),
          .over_labels = highest ? OverLabels::kHighest : OverLabels::kSum,
          .shown_as = std::string(text)};
}

std::vector<Gauge> UsualGauges() {
  std::vector<Gauge> gauges;
  for (const char* name :
       {"refrain_kv_used_bytes", "refrain_kv_physical_tokens", "refrain_kv_logical_tokens",
        "vllm:num_requests_running", "vllm:num_requests_waiting", "sglang:num_running_reqs",
        "sglang:num_queue_reqs", "llamacpp:requests_processing", "llamacpp:requests_deferred"}) {
    gauges.push_back({name, OverLabels::kSum, name});
  }
  for (const char* share :
       {"refrain_kv_sharing_factor", "vllm:kv_cache_usage_perc", "sglang:token_usage"}) {
    gauges.push_back({share, OverLabels::kHighest, share});
  }
  return gauges;
}

// A page takes milliseconds, and a busy server's a second or so. Finish waits for the reading under
// way, and for the last one.
constexpr double kMostReadingS = 3;
constexpr double kMostLastReadingS = 1;

class MetricsWatch::State {
 public:
  explicit State(MetricsWatchOptions options)
      : options_(std::move(options)), thread_([this] { Watch(); }) {}
  ~State() { Finish(); }

  std::map<std::string, double> Finish() {
    {
      const MutexLock lock(mutex_);
      finished_ = true;
    }
    changed_.NotifyAll();
    if (thread_.joinable()) thread_.join();
    return peaks_;
  }

 private:
  enum class Reading { kRead, kSilence, kNoPage };

  void Watch() {
    // One more reading after Finish, the last of a short run, unless the server is silent.
    for (Reading reading = Reading::kRead; reading != Reading::kNoPage;) {
      const bool last = WaitForNext();
      if (last && reading == Reading::kSilence) return;
      reading = Read(last ? kMostLastReadingS : kMostReadingS);
      if (last) return;
    }
  }

  // True when it is over. The first reading is not waited for.
  bool WaitForNext() {
    const MutexLock lock(mutex_);
    const auto next = next_reading_;
    while (!finished_ && changed_.WaitUntil(mutex_, next)) {
    }
    next_reading_ = std::chrono::steady_clock::now() +
                    std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                        std::chrono::duration<double>(options_.interval_s));
    return finished_;
  }

  Reading Read(double most_s) {
    const auto reply = Fetch(
        options_.target, {.path = "/metrics", .api_key = options_.api_key, .timeout_s = most_s});
    if (!reply.ok()) return Reading::kSilence;  // under load a page may fail once
    if (reply->status == 503 || reply->status == 429) return Reading::kRead;
    if (reply->status != 200) return Reading::kNoPage;
    const std::map<std::string, MetricValue> now = ReadPrometheusText(reply->body);
    for (const Gauge& gauge : options_.gauges) {
      const auto found = now.find(gauge.name);
      if (found == now.end()) continue;
      const bool highest = gauge.over_labels == OverLabels::kHighest;
      const double value = highest ? found->second.highest : found->second.sum;
      const auto [peak, is_new] = peaks_.emplace(gauge.shown_as, value);
      if (!is_new) peak->second = std::max(peak->second, value);
    }
    return Reading::kRead;
  }

  const MetricsWatchOptions options_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool finished_ REFRAIN_GUARDED_BY(mutex_) = false;
  // The thread's alone until it has ended.
  std::chrono::steady_clock::time_point next_reading_ = std::chrono::steady_clock::now();
  std::map<std::string, double> peaks_;
  std::thread thread_;
};

MetricsWatch::MetricsWatch(MetricsWatchOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
MetricsWatch::~MetricsWatch() = default;

std::map<std::string, double> MetricsWatch::Finish() { return state_->Finish(); }

}  // namespace refrain::loadgen
