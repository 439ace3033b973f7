#include "tools/loadgen/options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace refrain::loadgen {

const char kHelp[] =
    R"(loadgen --url=http://HOST:PORT [OPTIONS]   load on a server of language models, and how it took it

docs/load-testing.md explains. Defaults stand in brackets.

Server
  --url=URL            of an OpenAI-compatible server
  --grpc=HOST:PORT     load over Refrain's own gRPC instead, by TLS where https:// precedes it;
                       --url is then for /metrics only
  --calls-per-connection=N  of gRPC at a time, at most; 1: a connection for each            [100]
  --model=NAME         as the server calls it                       [the first of /v1/models]
  --api-key-file=FILE  its first line is sent as Bearer token
  --tls-ca=FILE        certificates (PEM) that vouch for an https server       [the system's]
  --tls-verify=on|off  off: any certificate will do                                          [on]
  --prompt-form=FORM   token_ids, text (completions), chat, auto: token_ids for made-up prompts
                       where the server takes them, else text; chat for dialogues; of a line
                       of jsonl token_ids, text or chat as it is written                   [auto]
  --temperature=T      [0]            --ignore-eos=on|off  answers have just the asked length  [on]
  --extra-body=JSON    an object whose members every request has, in place of loadgen's own
  --timeout-s=S        from sending to the last byte                                        [300]

Load
  --arrivals=LAW       poisson, gamma, constant: an open loop at --rate; trace: as the workload
                       says; closed: --users at a time                                  [poisson]
  --rate=R             requests (sessions, if they have turns) per second                     [1]
  --burstiness=B       shape of gamma gaps: below 1 in bursts, above 1 more even              [1]
  --users=N            of the closed loop                                                     [1]
  --trace-speed=X      2: twice as fast as recorded                                           [1]
  --requests=N         in all; 0: no limit                    [100, with --duration-s no limit]
  --duration-s=S       in which requests are sent                                      [no limit]
  --drain-s=S          to wait for answers after the last request was due                    [60]
  --max-in-flight=N    more wait here, which is part of their latency; 0: no limit            [0]
  --warmup=N           requests before, one at a time, not counted; they must succeed         [0]
  --seed=N             the same seed, the same load: times, and prompts that are made up, which a
                       server has then in its cache if it had them before  [a new one each call]

Workload
  --workload=KIND      shared_prompts, sharegpt, mooncake, mt_bench, qmsum, jsonl  [shared_prompts]
  --file=PATH          of all kinds but shared_prompts
  --repeat=on|same|off  begin the file again at its end; on: each pass with new prompts (mooncake:
                       other tokens, text: the pass's number before it); same: as they are,
                       which a prefix cache has by then                                     [off]
  --turns=N            of a conversation; 0: as many as recorded                              [1]
  --think-s=S          between an answer and the next turn                                    [0]
  --output-tokens=N    of every answer                  [shared_prompts 64, else as recorded]
  --max-output-tokens=N, --max-input-tokens=N
                       cut longer answers, leave out longer prompts                    [no limit]
  --shared-share=X     share of requests with a shared system prompt                          [1]
  --shared-prompts=N   how many different ones                                                [1]
  --shared-tokens=N    of a system prompt    [1024]    --unique-tokens=N  behind it          [64]
  --token-range=LOW:HIGH  ids of made-up prompts; HIGH is not one              [1000:30000]
  --block-tokens=N     sent for each block of a mooncake trace                              [512]

Result
  --slo=LIMITS         METRIC:MS with commas between; METRIC: ttft, tpot, e2e, normalized
  --slo-statistic=S    which a rate is judged by: mean, p50, p90, p99                       [p99]
  --slo-failed-share=X failures that a held rate may have                                     [0]
  --sweep=RATES        1,2,4: these; START or START:FACTOR: searches the highest rate held
  --sweep-precision=X  of the search                [0.1]    --sweep-max=R  no rate above it
  --metrics=on|off     read peaks of gauges from /metrics                                    [on]
  --metric=NAME        one more gauge, its samples added up; max:NAME: the highest of them;
                       may be repeated
  --json=FILE          the result for programs ("-": to standard output instead of the table)
  --label=TEXT         a name for the result, kept in the JSON
  --help               this text

Exit status: 0; 1 when no request succeeded; 2 when an option, a file or the server cannot be used,
or the result cannot be written; 130 or 143 when SIGINT or SIGTERM ended it. What was measured before
is reported all the same; a second signal ends it without.
)";

namespace {

using Set = std::function<absl::Status(const std::string& value)>;

absl::Status Refuse(const std::string& value, std::string_view valid) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot use \"", value, "\"; valid: ", std::string(valid)));
}

Set Text(std::string* to) {
  return [to](const std::string& value) {
    if (value.empty()) return Refuse(value, "a text that is not empty");
    *to = value;
    return absl::OkStatus();
  };
}

Set Number(double* to, double least, bool least_too) {
  return [=](const std::string& value) {
    double number = 0;
    if (!absl::SimpleAtod(value, &number) || !std::isfinite(number) ||
        !(least_too ? number >= least : number > least)) {
      return Refuse(value, absl::StrCat("a number ", least_too ? "from " : "above ", least));
    }
    *to = number;
    return absl::OkStatus();
  };
}

Set Share(double* to) {
  return [to](const std::string& value) {
    double number = 0;
    if (!absl::SimpleAtod(value, &number) || !(number >= 0 && number <= 1)) {
      return Refuse(value, "a number from 0 to 1");
    }
    *to = number;
    return absl::OkStatus();
  };
}

template <typename Integer>
Set Count(Integer* to, Integer least) {
  return [=](const std::string& value) {
    Integer number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < least) {
      return Refuse(value, absl::StrCat("a whole number from ", least));
    }
    *to = number;
    return absl::OkStatus();
  };
}

// One of several words.
template <typename Value>
Set Choice(Value* to, std::vector<std::pair<std::string, Value>> choices) {
  return [to, choices = std::move(choices)](const std::string& value) {
    std::string valid;
    for (const auto& [name, chosen] : choices) {
      if (name == value) {
        *to = chosen;
        return absl::OkStatus();
      }
      absl::StrAppend(&valid, valid.empty() ? "" : ", ", name);
    }
    return Refuse(value, valid);
  };
}

Set OnOff(bool* to) { return Choice<bool>(to, {{"on", true}, {"off", false}}); }

// The words of --arrivals set two things.
struct ArrivalWord {
  LoopKind kind = LoopKind::kOpen;
  ArrivalLaw law = ArrivalLaw::kPoisson;
};

Set ArrivalChoice(LoadOptions* load) {
  return [load](const std::string& value) {
    ArrivalWord word;
    const absl::Status set =
        Choice<ArrivalWord>(&word, {{"poisson", {LoopKind::kOpen, ArrivalLaw::kPoisson}},
                                    {"gamma", {LoopKind::kOpen, ArrivalLaw::kGamma}},
                                    {"constant", {LoopKind::kOpen, ArrivalLaw::kConstant}},
                                    {"trace", {LoopKind::kTrace, ArrivalLaw::kPoisson}},
                                    {"closed", {LoopKind::kClosed, ArrivalLaw::kPoisson}}})(value);
    load->kind = word.kind;
    load->arrivals.law = word.law;
    return set;
  };
}

Set Range(TokenRange* range) {
  return [range](const std::string& value) {
    const size_t colon = value.find(':');
    TokenRange read;
    if (colon == std::string::npos || !absl::SimpleAtoi(value.substr(0, colon), &read.low) ||
        !absl::SimpleAtoi(value.substr(colon + 1), &read.high) || read.low < 0 ||
        read.high <= read.low) {
      return Refuse(value, "LOW:HIGH, two whole numbers with 0 <= LOW < HIGH");
    }
    *range = read;
    return absl::OkStatus();
  };
}

template <typename Value, typename Parse>
Set Parsed(Value* to, Parse parse) {
  return [=](const std::string& value) {
    auto parsed = parse(value);
    if (!parsed.ok()) return parsed.status();
    *to = *std::move(parsed);
    return absl::OkStatus();
  };
}

std::map<std::string, Set> ServerFlags(Options* o) {
  using Form = std::optional<PromptForm>;
  return {{"url", Text(&o->url)},
          {"grpc", Text(&o->grpc_address)},
          {"calls-per-connection", Count<int32_t>(&o->calls_per_connection, 1)},
          {"model", Text(&o->model)},
          {"api-key-file", Text(&o->api_key_file)},
          {"tls-ca", Text(&o->tls_ca_file)},
          {"tls-verify", OnOff(&o->tls_verify)},
          {"prompt-form", Choice<Form>(&o->prompt_form, {{"auto", std::nullopt},
                                                         {"token_ids", PromptForm::kTokenIds},
                                                         {"text", PromptForm::kText},
                                                         {"chat", PromptForm::kChat}})},
          {"temperature", Number(&o->temperature, 0, true)},
          {"ignore-eos", OnOff(&o->ignore_eos)},
          {"extra-body", Parsed(&o->extra_body, ParseExtraBody)},
          {"timeout-s", Number(&o->timeout_s, 0, false)}};
}

std::map<std::string, Set> LoadFlags(Options* o) {
  return {{"arrivals", ArrivalChoice(&o->load)},
          {"rate", Number(&o->load.arrivals.rate_per_s, 0, false)},
          {"burstiness", Number(&o->load.arrivals.burstiness, 0, false)},
          {"users", Count<int32_t>(&o->load.users, 1)},
          {"trace-speed", Number(&o->load.trace_speed, 0, false)},
          {"requests", Count<int64_t>(&o->load.most_requests, 0)},
          {"duration-s", Number(&o->load.duration_s, 0, false)},
          {"drain-s", Number(&o->load.drain_s, 0, true)},
          {"max-in-flight", Count<int32_t>(&o->load.most_in_flight, 0)},
          {"warmup", Count<int32_t>(&o->warmup_requests, 0)},
          {"seed", Count<uint64_t>(&o->seed, 0)}};
}

std::map<std::string, Set> WorkloadFlags(Options* o) {
  return {{"workload",
           Choice<WorkloadKind>(&o->workload, {{"shared_prompts", WorkloadKind::kSharedPrompts},
                                               {"sharegpt", WorkloadKind::kShareGpt},
                                               {"mooncake", WorkloadKind::kMooncake},
                                               {"mt_bench", WorkloadKind::kMtBench},
                                               {"qmsum", WorkloadKind::kQmSum},
                                               {"jsonl", WorkloadKind::kOwnLines}})},
          {"file", Text(&o->file)},
          {"repeat",
           Choice<Repeat>(&o->repeat,
                          {{"on", Repeat::kNew}, {"same", Repeat::kSame}, {"off", Repeat::kOff}})},
          {"turns", Count<int32_t>(&o->turns, 0)},
          {"think-s", Number(&o->think_s, 0, true)},
          {"output-tokens", Count<int32_t>(&o->output_tokens, 1)},
          {"max-output-tokens", Count<int32_t>(&o->most_output_tokens, 1)},
          {"max-input-tokens", Count<int32_t>(&o->most_input_tokens, 1)},
          {"shared-share", Share(&o->shared_share)},
          {"shared-prompts", Count<int32_t>(&o->shared_prompts, 1)},
          {"shared-tokens", Count<int32_t>(&o->shared_tokens, 0)},
          {"unique-tokens", Count<int32_t>(&o->unique_tokens, 1)},
          {"token-range", Range(&o->token_range)},
          {"block-tokens", Count<int32_t>(&o->block_tokens, 1)}};
}

std::map<std::string, Set> ResultFlags(Options* o) {
  return {{"slo", Parsed(&o->slo.limits, ParseSloLimits)},
          {"slo-statistic", Parsed(&o->slo.statistic, ParseStatistic)},
          {"slo-failed-share", Share(&o->slo.most_failed_share)},
          {"sweep", Parsed(&o->sweep, ParseSweep)},
          {"sweep-precision", Number(&o->sweep_precision, kFinestPrecision, true)},
          {"sweep-max", Number(&o->sweep_most, 0, false)},
          {"metrics", OnOff(&o->watch_metrics)},
          {"metric",
           [o](const std::string& value) {
             o->more_metrics.push_back(value);
             return absl::OkStatus();
           }},
          {"json", Text(&o->json_path)},
          {"label", Text(&o->label)}};
}

// A pipe, say. Of what is not there another error tells.
bool CanBeReadOnlyOnce(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) &&
         !std::filesystem::is_regular_file(path, ignored) &&
         !std::filesystem::is_directory(path, ignored);
}

// An option, what it is for, and whether the load is that.
struct Use {
  const char* option;
  const char* of;
  bool here;
};

std::vector<Use> Uses(const Options& options) {
  const auto reads = [&](std::initializer_list<WorkloadKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), options.workload) != kinds.end();
  };
  using enum WorkloadKind;
  const LoadOptions& load = options.load;
  const bool open = load.kind == LoopKind::kOpen;
  const bool shared_prompts = reads({kSharedPrompts});
  const bool whole = options.turns == 0 || (options.turns == 1 && reads({kMooncake, kQmSum}));
  const char* const of_prompts = "--workload=shared_prompts";
  const bool sweeps = options.sweep.has_value();
  const bool judges = !options.slo.limits.empty();
  return {
      {"calls-per-connection", "--grpc", !options.grpc_address.empty()},
      {"turns", "--workload=shared_prompts, sharegpt or mt_bench: others have their own turns",
       whole || reads({kSharedPrompts, kShareGpt, kMtBench})},
      {"think-s", "--workload=shared_prompts, sharegpt, mt_bench or jsonl, which have turns",
       reads({kSharedPrompts, kShareGpt, kMtBench, kOwnLines})},
      {"shared-share", of_prompts, shared_prompts},
      {"shared-prompts", of_prompts, shared_prompts},
      {"shared-tokens", of_prompts, shared_prompts},
      {"unique-tokens", of_prompts, shared_prompts},
      {"token-range", "--workload=shared_prompts or mooncake, whose prompts are made up",
       reads({kSharedPrompts, kMooncake})},
      {"block-tokens", "--workload=mooncake", reads({kMooncake})},
      {"rate", "--arrivals=poisson, gamma or constant, without --sweep", open && !sweeps},
      {"burstiness", "--arrivals=gamma", open && load.arrivals.law == ArrivalLaw::kGamma},
      {"users", "--arrivals=closed", load.kind == LoopKind::kClosed},
      {"trace-speed", "--arrivals=trace", load.kind == LoopKind::kTrace},
      {"slo-statistic", "--slo", judges},
      {"slo-failed-share", "--slo", judges},
      {"sweep-precision", "--sweep", sweeps},
      {"sweep-max", "--sweep", sweeps},
      {"metric", "--url and --metrics=on: it is read from /metrics",
       !options.url.empty() && options.watch_metrics},
  };
}

// A load that passes over what it was told is another than its command says.
absl::Status CheckHonoured(const Options& options, const std::set<std::string>& given) {
  for (const Use& use : Uses(options)) {
    if (use.here || !given.contains(use.option)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", use.option, " is for ", use.of));
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const Options& options) {
  const auto refuse = [](const char* text) { return absl::InvalidArgumentError(text); };
  if (options.url.empty() && options.grpc_address.empty()) {
    return refuse("--url (or --grpc) is missing: which server?");
  }
  if (!options.grpc_address.empty() && !options.extra_body.empty()) {
    return refuse("--extra-body is for --url: gRPC has no JSON");
  }
  const bool made_up = options.workload == WorkloadKind::kSharedPrompts;
  if (!made_up && options.file.empty())
    return refuse("--file is missing: this --workload reads one");
  if (made_up && !options.file.empty()) {
    return refuse("--file is for the other kinds of --workload: shared_prompts reads none");
  }
  const bool repeats = options.repeat != Repeat::kOff;
  if (made_up && repeats) return refuse("--repeat is for workloads that read a file");
  if (repeats && CanBeReadOnlyOnce(options.file)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--repeat: ", options.file, " can be read only once"));
  }
  if (made_up && options.turns == 0) {
    return refuse("--turns=0 (as recorded) needs a recorded --workload; valid here: from 1");
  }
  if (made_up && (options.most_input_tokens > 0 || options.most_output_tokens > 0)) {
    return refuse("--max-input-tokens and --max-output-tokens are for workloads that are recorded");
  }
  const bool jsonl = options.workload == WorkloadKind::kOwnLines;
  if (options.most_input_tokens > 0 && (jsonl || options.workload == WorkloadKind::kMtBench)) {
    return refuse("--max-input-tokens is for --workload=sharegpt, qmsum or mooncake");
  }
  const bool trace = options.load.kind == LoopKind::kTrace;
  if (trace && repeats) return refuse("--repeat does not go with --arrivals=trace");
  if (trace && made_up) {
    return refuse("--arrivals=trace needs a workload with times: mooncake or jsonl");
  }
  if (options.sweep.has_value() && options.load.kind != LoopKind::kOpen) {
    return refuse("--sweep raises --rate: it needs --arrivals=poisson, gamma or constant");
  }
  if (options.sweep.has_value()) {
    std::vector<double> rates = options.sweep->rates;
    if (rates.empty()) rates.push_back(options.sweep->start);
    const double highest = *std::max_element(rates.begin(), rates.end());
    if (highest > options.sweep->most) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sweep: ", highest, " is above --sweep-max=", options.sweep->most));
    }
  }
  if (options.sweep.has_value() && options.slo.limits.empty()) {
    return refuse("--sweep needs --slo: what has to hold?");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments, uint64_t seed) {
  Options options;
  options.seed = seed;
  constexpr int64_t kUnset = -1;
  constexpr int64_t kUsualRequests = 100;
  options.load.most_requests = kUnset;
  std::map<std::string, Set> flags = ServerFlags(&options);
  flags.merge(LoadFlags(&options));
  flags.merge(WorkloadFlags(&options));
  flags.merge(ResultFlags(&options));
  std::set<std::string> given;
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      return options;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const auto flag = name.starts_with("--") ? flags.find(name.substr(2)) : flags.end();
    if (flag == flags.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no option ", argument, " (see --help)"));
    }
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(name, " needs a value: ", name, "=..."));
    }
    const absl::Status set = flag->second(argument.substr(equals + 1));
    if (!set.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", set.message()));
    }
    given.insert(flag->first);
  }
  if (options.load.most_requests == kUnset) {
    options.load.most_requests = options.load.duration_s > 0 ? 0 : kUsualRequests;
  }
  options.load.arrivals.seed = options.seed;
  if (options.sweep.has_value()) {
    options.sweep->precision = options.sweep_precision;
    options.sweep->most = options.sweep_most;
  }
  const absl::Status together = CheckTogether(options);
  if (!together.ok()) return together;
  const absl::Status honoured = CheckHonoured(options, given);
  if (!honoured.ok()) return honoured;
  return options;
}

}  // namespace refrain::loadgen
