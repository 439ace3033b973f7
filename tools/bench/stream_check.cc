// A closed loop of users that stream answers of a server that counts, and that check each of them:
// as many tokens as were asked for, one an event, in order, [DONE], and nothing wrong with the
// HTTP. refraind_costless counts by itself, refraind_fake repeats the digits that are its prompt.
// One thread.
//
//   stream_check --url=URL --path=chat|completions --users=N --streams=N --tokens=N
//   --modulo=1000|10
//
// Prints one line of JSON: what was counted, its seconds, and the processor time this took. Exit
// status 1, with the first fault on standard error, when an answer was not as it should be.

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tools/loadgen/event_loop.h"
#include "tools/loadgen/http_backend.h"

namespace refrain::bench {
namespace {

struct Options {
  std::string url;
  bool chat = false;
  int users = 64;
  int streams = 640;
  int tokens = 256;
  int modulo = 1000;  // answers count so far, then from 0 on
};

loadgen::PromptForm FormOf(const Options& options) {
  return options.chat ? loadgen::PromptForm::kChat : loadgen::PromptForm::kText;
}

struct Totals {
  int started = 0;
  int streams = 0;  // that were right
  int64_t tokens = 0;
  int running = 0;
  std::vector<double> first_token_s;
  std::optional<std::string> fault;
};

// The number in " N" or "N"; -1 for any other text.
int NumberOf(std::string_view text) {
  int number = -1;
  if (text.starts_with(' ')) text.remove_prefix(1);
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() ? number : -1;
}

// A prompt for each stream, so that answers differ from the first chunk on as they usually do;
// where it is repeated, it begins anywhere and counts modulo 10.
std::string PromptOf(const Options& options, int stream) {
  if (options.modulo != 10) return absl::StrCat(1'000'000 + stream, " count");
  std::string digits;
  for (int i = 0; i < 100; ++i) digits.push_back(static_cast<char>('0' + (stream + i) % 10));
  return digits;
}

// Streams one answer after the other, as long as there are any to be asked for.
class User final : public loadgen::AnswerSink {
 public:
  User(const Options& options, loadgen::Backend* backend, loadgen::EventLoop* loop, Totals* totals)
      : options_(options), backend_(backend), loop_(loop), totals_(totals) {}

  void Start() {
    if (totals_->started == options_.streams || totals_->fault.has_value()) return;
    const int stream = totals_->started++;
    ++totals_->running;
    tokens_ = 0;
    begin_s_ = loop_->NowS();
    const std::string prompt = PromptOf(options_, stream);
    backend_->Start(backend_->Encode({.form = FormOf(options_),
                                      .text = prompt,
                                      .messages = {{.role = "user", .content = prompt}},
                                      .output_tokens = options_.tokens}),
                    this);
  }

  void OnTokens(double at_s, int32_t tokens, std::string_view text,
                std::span<const int32_t>) override {
    const int number = NumberOf(text);
    if (tokens_ == 0) {
      totals_->first_token_s.push_back(at_s - begin_s_);
    } else if (number != (last_number_ + 1) % options_.modulo) {
      Fault(absl::StrCat("\"", std::string(text), "\" came after ", last_number_));
    }
    if (tokens != 1 || number < 0)
      Fault(absl::StrCat("an event of the text \"", std::string(text), "\""));
    last_number_ = number;
    tokens_ += tokens;
  }

  void OnEnd(double, const loadgen::AnswerEnd& end) override {
    --totals_->running;
    if (end.failure.has_value()) {
      Fault(absl::StrCat(end.failure->kind, ": ", end.failure->message));
    } else if (tokens_ != options_.tokens || end.output_tokens.value_or(-1) != tokens_) {
      Fault(absl::StrCat(tokens_, " tokens came, ", end.output_tokens.value_or(-1),
                         " were told of, ", options_.tokens, " asked for"));
    }
    if (!totals_->fault.has_value()) {
      ++totals_->streams;
      totals_->tokens += tokens_;
    }
    Start();
    if (totals_->running == 0) loop_->Stop();
  }

 private:
  void Fault(std::string what) {
    if (!totals_->fault.has_value()) totals_->fault = std::move(what);
  }

  const Options& options_;
  loadgen::Backend* const backend_;
  loadgen::EventLoop* const loop_;
  Totals* const totals_;
  double begin_s_ = 0;
  int tokens_ = 0;
  int last_number_ = -1;
};

bool Parse(const std::string& argument, Options* options) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = argument.substr(0, equals);
  const std::string value = argument.substr(equals + 1);
  const auto count = [&](int* to) { return absl::SimpleAtoi(value, to) && *to > 0; };
  if (name == "--users") return count(&options->users);
  if (name == "--streams") return count(&options->streams);
  if (name == "--tokens") return count(&options->tokens);
  if (name == "--modulo") return count(&options->modulo);
  if (name == "--path") {
    options->chat = value == "chat";
    return options->chat || value == "completions";
  }
  options->url = value;
  return name == "--url";
}

double ProcessorSeconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double Quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<size_t>(q * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

int Main(const Options& options) {
  const absl::StatusOr<loadgen::HttpTarget> target = loadgen::ParseTarget(options.url);
  if (!target.ok()) {
    std::fprintf(stderr, "stream_check: %s\n", std::string(target.status().message()).c_str());
    return 2;
  }
  loadgen::AsioLoop loop;
  auto backend =
      loadgen::MakeHttpBackend(&loop, {.target = *target, .wire = {.model = "costless"}});
  if (!backend.ok()) {
    std::fprintf(stderr, "stream_check: %s\n", std::string(backend.status().message()).c_str());
    return 2;
  }
  Totals totals;
  std::vector<std::unique_ptr<User>> users;
  for (int i = 0; i < options.users; ++i) {
    users.push_back(std::make_unique<User>(options, backend->get(), &loop, &totals));
  }
  const double begin_s = loop.NowS();
  loop.Post([&] {
    for (auto& user : users) user->Start();
  });
  loop.Run();
  const double seconds = loop.NowS() - begin_s;
  if (totals.fault.has_value() || totals.streams != options.streams) {
    std::fprintf(stderr, "stream_check: %d of %d streams were right; %s\n", totals.streams,
                 options.streams, totals.fault.value_or("others did not end").c_str());
    return 1;
  }
  std::sort(totals.first_token_s.begin(), totals.first_token_s.end());
  std::printf(
      "{\"streams\":%d,\"tokens\":%lld,\"seconds\":%.6f,\"cpu_seconds\":%.6f,"
      "\"first_token_p50_ms\":%.3f,\"first_token_p99_ms\":%.3f}\n",
      totals.streams, static_cast<long long>(totals.tokens), seconds, ProcessorSeconds(),
      Quantile(totals.first_token_s, 0.5) * 1e3, Quantile(totals.first_token_s, 0.99) * 1e3);
  return 0;
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) {
  refrain::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    if (!refrain::bench::Parse(argv[i], &options)) {
      std::fprintf(stderr, "stream_check: cannot use %s\n", argv[i]);
      return 2;
    }
  }
  return refrain::bench::Main(options);
}
