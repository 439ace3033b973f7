// Puts load on a server of language models and reports how it took it. docs/load-testing.md
// explains.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/open_files.h"
#include "tools/loadgen/event_loop.h"
#include "tools/loadgen/grpc_backend.h"
#include "tools/loadgen/http_backend.h"
#include "tools/loadgen/interruption.h"
#include "tools/loadgen/load_run.h"
#include "tools/loadgen/metrics_watch.h"
#include "tools/loadgen/openai_wire.h"
#include "tools/loadgen/options.h"
#include "tools/loadgen/progress.h"
#include "tools/loadgen/report.h"
#include "tools/loadgen/server_probe.h"
#include "tools/loadgen/tls_client.h"
#include "tools/loadgen/workload_choice.h"
#include "tools/result_file.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

constexpr int kNothingSucceeded = 1;
constexpr int kCannotUse = 2;
constexpr int kSignalled = 128;  // and the signal's number, as shells have it

// All that the runs of one call share.
struct Bench {
  Options options;
  HttpTarget target;
  std::string api_key;
  std::string model;
  std::optional<PromptForm> form;  // nothing: each line of one's own has its own
  AsioLoop loop;
  std::unique_ptr<Workload> workload;
  std::unique_ptr<Backend> backend;
};

// Another one for each call, so that none finds its prompts cached by the one before.
uint64_t SeedOfCall() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

absl::StatusOr<std::optional<PromptForm>> ChooseForm(const Bench& bench) {
  if (bench.options.prompt_form.has_value()) return bench.options.prompt_form;
  if (bench.options.workload == WorkloadKind::kOwnLines) return std::optional<PromptForm>();
  if (!IsMadeUp(bench.options)) return PromptForm::kChat;
  if (!bench.options.grpc_address.empty()) return PromptForm::kTokenIds;
  const auto takes = [&](int32_t id) {
    return TakesTokenIds(bench.target, bench.api_key, bench.model, id);
  };
  constexpr int32_t kInAnyVocabulary = 3;
  const int32_t highest = bench.options.token_range.high - 1;
  const auto takes_highest = takes(highest);
  if (!takes_highest.ok()) return takes_highest.status();
  if (*takes_highest) return PromptForm::kTokenIds;
  // Words would be another load than was asked for where only the ids are wrong.
  const auto takes_any = takes(kInAnyVocabulary);
  if (!takes_any.ok()) return takes_any.status();
  if (!*takes_any) return PromptForm::kText;
  return absl::InvalidArgumentError(
      absl::StrCat("the server takes token ids, but not ", highest,
                   ": --token-range=LOW:HIGH must lie within the model's vocabulary"));
}

absl::StatusOr<std::unique_ptr<Backend>> ConnectHttp(Bench* bench) {
  const Options& options = bench->options;
  return MakeHttpBackend(&bench->loop, {.target = bench->target,
                                        .wire = {.model = bench->model,
                                                 .temperature = options.temperature,
                                                 .ignore_eos = options.ignore_eos,
                                                 .extra_members = options.extra_body},
                                        .api_key = bench->api_key,
                                        .timeout_s = options.timeout_s,
                                        .resends = true});
}

absl::StatusOr<std::unique_ptr<Backend>> ConnectGrpc(Bench* bench) {
  const Options& options = bench->options;
  constexpr std::string_view kSecure = "https://";
  std::string address = options.grpc_address;
  std::optional<GrpcTls> tls;
  if (address.starts_with(kSecure)) {
    address.erase(0, kSecure.size());
    tls = GrpcTls{.verify = options.tls_verify};
    if (!options.tls_ca_file.empty()) {
      // Checked as for HTTP: gRPC would only say that every handshake failed.
      const auto checked = TlsClient::Make({.authorities_file = options.tls_ca_file});
      if (!checked.ok()) return checked.status();
      std::ifstream file(options.tls_ca_file);
      tls->authorities.assign(std::istreambuf_iterator<char>(file), {});
    }
  }
  return MakeGrpcBackend(&bench->loop, {.address = address,
                                        .tls = tls,
                                        .calls_per_connection = options.calls_per_connection,
                                        .model = bench->model,
                                        .api_key = bench->api_key,
                                        .temperature = options.temperature,
                                        .ignore_eos = options.ignore_eos,
                                        .timeout_s = options.timeout_s});
}

absl::Status Connect(Bench* bench) {
  const Options& options = bench->options;
  if (!options.url.empty()) {
    auto target = ParseTarget(options.url);
    if (!target.ok()) return target.status();
    bench->target = *std::move(target);
    if (bench->target.https) {
      auto tls =
          TlsClient::Make({.authorities_file = options.tls_ca_file, .verify = options.tls_verify});
      if (!tls.ok()) return tls.status();
      bench->target.tls = *std::move(tls);
    }
  }
  if (!options.api_key_file.empty()) {
    auto key = ReadKey(options.api_key_file);
    if (!key.ok()) return key.status();
    bench->api_key = *std::move(key);
  }
  bench->model = options.model;
  if (bench->model.empty() && options.grpc_address.empty()) {
    auto model = AskForModel(bench->target, bench->api_key);
    if (!model.ok()) return model.status();
    bench->model = *std::move(model);
  }
  const auto form = ChooseForm(*bench);
  if (!form.ok()) return form.status();
  bench->form = *form;
  auto backend = options.grpc_address.empty() ? ConnectHttp(bench) : ConnectGrpc(bench);
  if (!backend.ok()) return backend.status();
  bench->backend = *std::move(backend);
  return absl::OkStatus();
}

// Looks at every sign of progress whether a signal came.
void AbortIfInterrupted(LoadRun* run) {
  if (InterruptedBy().has_value()) run->Abort(absl::CancelledError("interrupted"));
}

// Whether --extra-body has one of these members.
bool ChangesAny(const Options& options, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return options.extra_body.contains(name); });
}

// Whether it says how long answers may be; llama-server goes by the last.
bool ChangesLimit(const Options& options) {
  return ChangesAny(options, {"max_tokens", "max_completion_tokens", "n_predict"});
}

// Whether each request's limit of tokens is its turn's, and usage counts those of its answer only.
bool SetsMostTokens(const Options& options) {
  return !ChangesLimit(options) && !ChangesAny(options, {"best_of"});
}

absl::Status WarmUp(Bench* bench) {
  if (bench->options.warmup_requests == 0) return absl::OkStatus();
  LoadOptions load = {
      .kind = LoopKind::kClosed, .users = 1, .most_requests = bench->options.warmup_requests};
  if (bench->form.has_value()) load.form = *bench->form;
  load.sets_most_tokens = SetsMostTokens(bench->options);
  Recorder recorder{Slo{}};
  LoadRun run(load, bench->workload.get(), bench->backend.get(), &bench->loop, &recorder);
  run.OnProgress([&](double) { AbortIfInterrupted(&run); });
  const absl::Status status = run.Run();
  if (!status.ok()) return status;
  const RunResult result = recorder.Finish(0);
  if (result.failed == 0) return absl::OkStatus();
  const auto& [kind, failures] = *result.failures.begin();
  return absl::UnavailableError(
      absl::StrCat("a warm-up request failed: ", kind, ": ", failures.example));
}

double DoneShare(const LoadOptions& load, const Recorder& recorder, double elapsed_s) {
  double share = 0;
  if (load.duration_s > 0) share = elapsed_s / load.duration_s;
  if (load.most_requests > 0) {
    const auto ended = static_cast<double>(recorder.completed() + recorder.failed());
    share = std::max(share, ended / static_cast<double>(load.most_requests));
  }
  return share;
}

// Whether an answer that is shorter than its request asked for is one that lacks something.
bool WantsExactLengths(const Options& options) {
  return options.ignore_eos && !ChangesLimit(options) &&
         !ChangesAny(options, {"ignore_eos", "stop", "stop_token_ids"});
}

// The run's error when nothing was recorded before it; else what was, marked as part of a run.
absl::StatusOr<ReportedRun> RunOnce(Bench* bench, std::optional<double> rate_per_s) {
  const Options& options = bench->options;
  LoadOptions load = options.load;
  if (bench->form.has_value()) load.form = *bench->form;
  load.sets_most_tokens = SetsMostTokens(options);
  if (rate_per_s.has_value()) load.arrivals.rate_per_s = *rate_per_s;
  ReportedRun reported;
  if (load.kind == LoopKind::kOpen) reported.rate_per_s = load.arrivals.rate_per_s;
  std::optional<MetricsWatch> watch;
  if (options.watch_metrics && !options.url.empty()) {
    std::vector<Gauge> gauges = UsualGauges();
    for (const std::string& text : options.more_metrics) gauges.push_back(ParseGauge(text));
    watch.emplace(MetricsWatchOptions{
        .target = bench->target, .api_key = bench->api_key, .gauges = std::move(gauges)});
  }
  Recorder recorder(options.slo);
  LoadRun run(load, bench->workload.get(), bench->backend.get(), &bench->loop, &recorder);
  {
    Progress progress(stderr);
    run.OnProgress([&](double elapsed_s) {
      progress.Show({.elapsed_s = elapsed_s,
                     .completed = recorder.completed(),
                     .failed = recorder.failed(),
                     .in_flight = recorder.in_flight(),
                     .output_tokens = recorder.output_tokens(),
                     .done_share = DoneShare(load, recorder, elapsed_s)});
      AbortIfInterrupted(&run);
    });
    reported.ended_early = run.Run();
  }
  if (!reported.ended_early.ok() && recorder.completed() + recorder.failed() == 0) {
    return reported.ended_early;
  }
  if (watch.has_value()) reported.server_peaks = watch->Finish();
  reported.result = recorder.Finish(run.begin_s());
  reported.ran_out = run.ran_out();
  reported.exact_lengths = WantsExactLengths(options);
  if (!options.slo.limits.empty() && reported.ended_early.ok()) {
    reported.broken_limits =
        BrokenLimits(options.slo, reported.result.metrics, reported.result.failed_share());
  }
  return reported;
}

// All that a call measured.
struct Measured {
  std::vector<ReportedRun> runs;
  std::optional<ReportedSweep> sweep;
  absl::Status ended_early;  // why it did; what was measured before stands
};

constexpr const char* FormName(std::optional<PromptForm> form) {
  if (!form.has_value()) return "auto";
  switch (*form) {
    case PromptForm::kTokenIds:
      return "token_ids";
    case PromptForm::kText:
      return "text";
    case PromptForm::kChat:
      return "chat";
  }
  return "";
}

// What all runs of a call share.
std::string CallTable(const Bench& bench) {
  return absl::StrCat("seed               ", bench.options.seed, "\nprompt form        ",
                      FormName(bench.form), "\n");
}

// Adds a run, also part of one. Its error, too.
absl::Status AddRun(Bench* bench, std::optional<double> rate_per_s, bool print,
                    Measured* measured) {
  auto run = RunOnce(bench, rate_per_s);
  if (!run.ok()) return run.status();
  measured->runs.push_back(*std::move(run));
  const ReportedRun& added = measured->runs.back();
  if (print) {
    const bool first = measured->runs.size() == 1;
    std::printf("%s%s\n", first ? CallTable(*bench).c_str() : "",
                RunTable(added, bench->options.slo).c_str());
    std::fflush(stdout);
  }
  return added.ended_early;
}

// Why a rate cannot be judged by its run, though that went to its end; OK: it can.
absl::Status CheckSaysSomething(const ReportedRun& run) {
  if (run.ran_out) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the workload had no more sessions after ", run.result.completed + run.result.failed,
        " requests, and says nothing of this rate; --repeat=on goes through a file again with new "
        "prompts, "
        "--requests=N takes fewer for each rate"));
  }
  if (run.result.came() == 0) {
    return absl::FailedPreconditionError(
        "no request came, which says nothing of this rate; a longer --duration-s has some");
  }
  return absl::OkStatus();
}

void RunSweep(Bench* bench, bool print, Measured* measured) {
  Sweep sweep(*bench->options.sweep);
  while (const std::optional<double> rate = sweep.Next()) {
    absl::Status run = AddRun(bench, *rate, print, measured);
    if (run.ok()) {
      run = CheckSaysSomething(measured->runs.back());
      measured->runs.back().ended_early = run;
    }
    if (!run.ok()) {
      measured->ended_early = absl::Status(
          run.code(), absl::StrCat("--sweep: at ", *rate, " requests/s: ", run.message()));
      break;
    }
    sweep.Report(*rate, *Held(measured->runs.back()));
  }
  if (measured->runs.empty()) return;
  measured->sweep = {.highest_rate_held = sweep.highest_held(),
                     .lowest_rate_broken = sweep.lowest_broken()};
  if (print) {
    std::printf("%s", SweepTable(measured->runs, *measured->sweep, bench->options.slo).c_str());
  }
}

Measured Measure(Bench* bench, bool print) {
  Measured measured;
  if (bench->options.sweep.has_value()) {
    RunSweep(bench, print, &measured);
  } else {
    measured.ended_early = AddRun(bench, std::nullopt, print, &measured);
  }
  return measured;
}

Json ResultJson(const Bench& bench, const Measured& measured,
                const std::vector<std::string>& arguments) {
  Json json = {{"format", "refrain-loadgen"},         {"version", 1},
               {"label", bench.options.label},        {"model", bench.model},
               {"prompt_form", FormName(bench.form)}, {"command", arguments},
               {"seed", bench.options.seed},          {"runs", Json::array()}};
  for (const ReportedRun& run : measured.runs) {
    json["runs"].push_back(RunJson(run, bench.options.slo));
  }
  if (measured.sweep.has_value()) json["sweep"] = SweepJson(*measured.sweep);
  return json;
}

int Complain(const absl::Status& status) {
  std::fprintf(stderr, "loadgen: %s\n", std::string(status.message()).c_str());
  const std::optional<int> signal = InterruptedBy();
  return absl::IsCancelled(status) && signal.has_value() ? kSignalled + *signal : kCannotUse;
}

absl::Status WriteJson(const std::string& path, const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  if (path == "-") {
    std::printf("%s\n", text.c_str());
    return FlushStandardOutput();
  }
  std::ofstream out(path);
  out << text << '\n';
  if (out.flush()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

int Main(const std::vector<std::string>& arguments) {
  auto options = ParseOptions(arguments, SeedOfCall());
  if (!options.ok()) return Complain(options.status());
  if (options->help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  Bench bench{.options = *std::move(options)};
  const absl::Status connected = Connect(&bench);
  if (!connected.ok()) return Complain(connected);
  auto workload = MakeWorkload(bench.options, bench.form);
  if (!workload.ok()) return Complain(workload.status());
  bench.workload = *std::move(workload);
  const absl::Status writable = CheckResultFile(bench.options.json_path);
  if (!writable.ok()) return Complain(writable);
  CatchInterruption();
  const absl::Status warm = WarmUp(&bench);
  if (!warm.ok()) return Complain(warm);
  const Measured measured = Measure(&bench, bench.options.json_path != "-");
  if (!measured.runs.empty() && !bench.options.json_path.empty()) {
    const absl::Status written =
        WriteJson(bench.options.json_path, ResultJson(bench, measured, arguments));
    if (!written.ok()) return Complain(written);
  }
  if (!measured.ended_early.ok()) return Complain(measured.ended_early);
  const bool any = std::any_of(measured.runs.begin(), measured.runs.end(),
                               [](const ReportedRun& run) { return run.result.completed > 0; });
  const absl::Status printed = FlushStandardOutput();
  if (!printed.ok()) return Complain(printed);
  return any ? 0 : kNothingSucceeded;
}

}  // namespace
}  // namespace refrain::loadgen

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);          // a server that goes away is a failure to count
  refrain::server::RaiseOpenFileLimit();  // each request under way has a connection
  return refrain::loadgen::Main(std::vector<std::string>(argv + 1, argv + argc));
}
