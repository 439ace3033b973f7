// The metrics page, from what an engine and an HTTP server tell to the text that Prometheus reads.

#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/server.h"
#include "server/metrics/histogram.h"
#include "server/unread_answers.h"
#include "tests/server/http/raw_client.h"
#include "tests/server/metrics/series_value.h"
#include "tests/support/fake_engine.h"

namespace refrain::server::metrics {
namespace {

using ::refrain::testing::FakeEngine;
using ::refrain::testing::GetRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::SeriesValue;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr double kBounds[] = {1, 2, 5};
constexpr char kModel[] = "model_name=\"fake-model\",engine=\"0\"";

TEST(HistogramTest, CountsAValueUnderTheFirstBoundThatIsNotBelowIt) {
  Histogram histogram(kBounds);
  for (const double value : {-1.0, 1.0, 1.5, 2.0, 5.0, 5.1, 1e30}) histogram.Observe(value);
  EXPECT_EQ(histogram.count(0), 2u);
  EXPECT_EQ(histogram.count(1), 2u);
  EXPECT_EQ(histogram.count(2), 1u);
  EXPECT_EQ(histogram.count(3), 2u);
  EXPECT_DOUBLE_EQ(histogram.sum(), -1.0 + 1.0 + 1.5 + 2.0 + 5.0 + 5.1 + 1e30);
}

TEST(HistogramTest, LosesNothingWhenManyThreadsObserve) {
  Histogram histogram(kBounds);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 10'000; ++k) histogram.Observe(2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.count(1), 40'000u);
  EXPECT_EQ(histogram.sum(), 80'000);
}

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest()
      : metrics_({.version = "9.9.9",
                  .cache = {.prefix_cache = true, .dtype = "f16", .eviction = "lru"},
                  .dropped_log_lines = [this] { return dropped_log_lines_; },
                  .unread = unread_}) {}

  void Load() { metrics_.SetEngine(&engine_); }
  engine::EngineObserver& observer() { return *metrics_.engine_observer(); }

  std::string Value(const std::string& series) const {
    return SeriesValue(metrics_.Page(), series);
  }
  // Of a series of the engine's; `labels` are those beside the model's.
  std::string Vllm(const std::string& name, const std::string& labels = "") const {
    return Value("vllm:" + name + "{" + kModel + (labels.empty() ? "" : "," + labels) + "}");
  }

  int64_t dropped_log_lines_ = 0;
  const std::shared_ptr<UnreadAnswers> unread_ = UnreadAnswers::Make(1'000'000);
  FakeEngine engine_;
  Metrics metrics_;
};

TEST_F(MetricsTest, AnswersWhileTheModelLoads) {
  const std::string page = metrics_.Page();
  EXPECT_THAT(page, HasSubstr("refrain_build_info{version=\"9.9.9\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\nrefrain_model_loaded 0\n"));
  EXPECT_THAT(page, HasSubstr("\nprocess_resident_memory_bytes "));
  EXPECT_THAT(page, Not(HasSubstr("vllm:"))) << "the model's name is not known yet";
  Load();
  EXPECT_EQ(Value("refrain_model_loaded"), "1");
  EXPECT_EQ(Value("refrain_engine_healthy"), "1");
  engine_.Die(absl::InternalError("broken"));
  EXPECT_EQ(Value("refrain_model_loaded"), "1");
  EXPECT_EQ(Value("refrain_engine_healthy"), "0");
}

TEST_F(MetricsTest, TellsWhatTheRequestLogHasLost) {
  EXPECT_EQ(Value("refrain_request_log_dropped_lines_total"), "0");
  dropped_log_lines_ = 7;
  EXPECT_EQ(Value("refrain_request_log_dropped_lines_total"), "7");
}

TEST_F(MetricsTest, ShowsEveryChildFromTheStart) {
  Load();
  for (const char* reason : {"stop", "length", "abort", "error", "repetition"}) {
    EXPECT_EQ(Vllm("request_success_total", std::string("finished_reason=\"") + reason + "\""),
              "0");
  }
  for (const char* source : {"local_compute", "local_cache_hit", "external_kv_transfer"}) {
    EXPECT_EQ(Vllm("prompt_tokens_by_source_total", std::string("source=\"") + source + "\""), "0");
  }
  EXPECT_EQ(Value("refrain_requests_total{status=\"DEADLINE_EXCEEDED\"}"), "0");
  EXPECT_EQ(Value("refrain_kv_used_bytes"), "0");
  EXPECT_EQ(Value("refrain_kv_sharing_factor"), "1");
  EXPECT_EQ(Vllm("e2e_request_latency_seconds_count"), "0");
}

TEST_F(MetricsTest, CountsARequestUnderVllmsNames) {
  Load();
  observer().OnArrival(100);
  observer().OnFirstScheduled(0.75, 100, 64);
  EXPECT_EQ(Value("refrain_queue_wait_seconds_sum"), "0.75");
  EXPECT_EQ(Vllm("prefix_cache_queries_total"), "100");
  EXPECT_EQ(Vllm("prefix_cache_hits_total"), "64");
  EXPECT_EQ(Vllm("prompt_tokens_cached_by_source_total", "source=\"device\""), "64");
  EXPECT_EQ(Vllm("prompt_tokens_cached_by_source_total", "source=\"host\""), "0");
  EXPECT_EQ(Vllm("prompt_tokens_total"), "0") << "not before the prompt is there";
  observer().OnFirstToken(0.9, 100, 64);
  observer().OnTokens(1);
  EXPECT_EQ(Vllm("prompt_tokens_total"), "100");
  EXPECT_EQ(Vllm("prompt_tokens_cached_total"), "64");
  EXPECT_EQ(Vllm("prompt_tokens_by_source_total", "source=\"local_compute\""), "36");
  EXPECT_EQ(Vllm("prompt_tokens_by_source_total", "source=\"local_cache_hit\""), "64");
  observer().OnTokenGap(0.03);
  observer().OnTokens(1);
  observer().OnTokenGap(0.05);
  observer().OnTokens(1);
  EXPECT_EQ(Vllm("generation_tokens_total"), "3");
  EXPECT_EQ(Vllm("inter_token_latency_seconds_count"), "2");
  EXPECT_EQ(Vllm("inter_token_latency_seconds_sum"), "0.08");
  EXPECT_EQ(Vllm("inter_token_latency_seconds_bucket", "le=\"0.025\""), "0");
  EXPECT_EQ(Vllm("inter_token_latency_seconds_bucket", "le=\"0.05\""), "2");

  engine::RequestObservation end;
  end.prompt_tokens = 100;
  end.cached_tokens = 64;
  end.generated_tokens = 3;
  end.most_choice_tokens = 3;
  end.n = 1;
  end.max_tokens = 16;
  end.prompt_done = true;
  end.ends[static_cast<size_t>(engine::FinishReason::kStop)] = 1;
  end.queue_s = 0.75;
  end.first_token_s = 0.875;
  end.prefill_s = 0.125;
  end.decode_s = 0.5;
  end.total_s = 1.375;
  observer().OnRequestEnd(end);
  EXPECT_EQ(Vllm("request_success_total", "finished_reason=\"stop\""), "1");
  EXPECT_EQ(Vllm("request_success_total", "finished_reason=\"length\""), "0");
  EXPECT_EQ(Value("refrain_requests_total{status=\"OK\"}"), "1");
  EXPECT_EQ(Vllm("e2e_request_latency_seconds_sum"), "1.375");
  EXPECT_EQ(Vllm("request_queue_time_seconds_sum"), "0.75");
  EXPECT_EQ(Vllm("request_prefill_time_seconds_sum"), "0.125");
  EXPECT_EQ(Vllm("request_decode_time_seconds_sum"), "0.5");
  EXPECT_EQ(Vllm("request_inference_time_seconds_sum"), "0.625");
  EXPECT_EQ(Vllm("request_time_per_output_token_seconds_sum"), "0.25");
  EXPECT_EQ(Vllm("request_prompt_tokens_sum"), "100");
  EXPECT_EQ(Vllm("request_prefill_kv_computed_tokens_sum"), "36");
  EXPECT_EQ(Vllm("request_generation_tokens_sum"), "3");
  EXPECT_EQ(Vllm("request_max_num_generation_tokens_sum"), "3");
  EXPECT_EQ(Vllm("request_params_max_tokens_sum"), "16");
  EXPECT_EQ(Vllm("request_params_n_bucket", "le=\"1.0\""), "1");
  EXPECT_EQ(Vllm("prompt_tokens_total"), "100") << "counted once";
}

// As vLLM does, for which each choice is a request.
TEST_F(MetricsTest, CountsEachChoiceInTheHistograms) {
  Load();
  observer().OnFirstToken(0.5, 100, 64);
  observer().OnFurtherFirstToken(0.75);
  const engine::ChoiceObservation choices[] = {
      {.tokens = 3, .first_token_s = 0.5, .prefill_s = 0.25, .decode_s = 0.5, .total_s = 1},
      {.tokens = 5, .first_token_s = 0.75, .prefill_s = 0.5, .decode_s = 1, .total_s = 2}};
  engine::RequestObservation end;
  end.prompt_tokens = 100;
  end.cached_tokens = 64;
  end.generated_tokens = 8;
  end.most_choice_tokens = 5;
  end.n = 2;
  end.max_tokens = 16;
  end.prompt_done = true;
  end.queue_s = 0.25;
  end.first_token_s = 0.5;
  end.prefill_s = 0.25;
  end.decode_s = 1.25;
  end.total_s = 2;
  end.choices = choices;
  observer().OnRequestEnd(end);
  for (const char* each :
       {"time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
        "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_inference_time_seconds", "request_time_per_output_token_seconds",
        "request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens",
        "request_prefill_kv_computed_tokens"}) {
    EXPECT_EQ(Vllm(std::string(each) + "_count"), "2") << each;
  }
  EXPECT_EQ(Vllm("time_to_first_token_seconds_sum"), "1.25");
  EXPECT_EQ(Vllm("e2e_request_latency_seconds_sum"), "3");
  EXPECT_EQ(Vllm("request_queue_time_seconds_sum"), "0.5");
  EXPECT_EQ(Vllm("request_prefill_time_seconds_sum"), "0.75");
  EXPECT_EQ(Vllm("request_decode_time_seconds_sum"), "1.5");
  EXPECT_EQ(Vllm("request_time_per_output_token_seconds_sum"), "0.5");
  EXPECT_EQ(Vllm("request_prompt_tokens_sum"), "200");
  EXPECT_EQ(Vllm("request_generation_tokens_sum"), "8");
  EXPECT_EQ(Vllm("request_prefill_kv_computed_tokens_sum"), "37");
  EXPECT_EQ(Vllm("request_params_n_count"), "1") << "of the request, there as here";
  EXPECT_EQ(Vllm("request_max_num_generation_tokens_sum"), "5");
  EXPECT_EQ(Vllm("prompt_tokens_total"), "100") << "computed once";
}

TEST_F(MetricsTest, CountsPromptsThatWereAllThatWasWanted) {
  Load();
  engine::RequestObservation end;
  end.prompt_tokens = 40;
  end.cached_tokens = 30;
  end.prompt_done = true;
  end.ends[static_cast<size_t>(engine::FinishReason::kLength)] = 1;
  observer().OnRequestEnd(end);
  EXPECT_EQ(Vllm("prompt_tokens_total"), "40");
  EXPECT_EQ(Vllm("time_to_first_token_seconds_count"), "0");
  EXPECT_EQ(Vllm("request_decode_time_seconds_count"), "0");
}

// All of these prompts are cached, so that what was computed is 0 on every page that is made beside
// them.
TEST_F(MetricsTest, APageThatIsMadeMeanwhileTellsOfNothingThatWasNotComputed) {
  Load();
  std::atomic<bool> done{false};
  std::thread engine([&] {
    while (!done) observer().OnFirstToken(0.001, 1000, 1000);
  });
  std::string computed = "0";
  for (int i = 0; i < 300 && computed == "0"; ++i) {
    computed = Vllm("prompt_tokens_by_source_total", "source=\"local_compute\"");
  }
  done = true;
  engine.join();
  EXPECT_EQ(computed, "0");
}

TEST_F(MetricsTest, MapsEndsAndStatus) {
  Load();
  engine::RequestObservation end;
  end.status = absl::StatusCode::kCancelled;
  end.ends[static_cast<size_t>(engine::FinishReason::kCancelled)] = 2;
  observer().OnRequestEnd(end);
  end = {};
  end.status = absl::StatusCode::kDeadlineExceeded;
  end.ends[static_cast<size_t>(engine::FinishReason::kError)] = 1;
  observer().OnRequestEnd(end);
  EXPECT_EQ(Vllm("request_success_total", "finished_reason=\"abort\""), "2");
  EXPECT_EQ(Vllm("request_success_total", "finished_reason=\"error\""), "1");
  EXPECT_EQ(Value("refrain_requests_total{status=\"CANCELLED\"}"), "1");
  EXPECT_EQ(Value("refrain_requests_total{status=\"DEADLINE_EXCEEDED\"}"), "1");
  EXPECT_EQ(Vllm("prompt_tokens_total"), "0") << "their prompts were not finished";
  EXPECT_EQ(Vllm("request_queue_time_seconds_count"), "0") << "they never ran";
}

TEST_F(MetricsTest, TellsWhatTheEngineCounted) {
  Load();
  engine::EngineStats counts;
  counts.steps_total = 1000;
  counts.steps_without_memory_total = 3;
  counts.corrupted_requests_total = 5;
  counts.preemptions_total = 22;
  counts.device_step_seconds_total = 2.5;
  counts.device_idle_seconds_total = 0.5;
  counts.device_unrecorded_steps_total = 7;
  engine_.SetCounts(counts);
  EXPECT_EQ(Value("refrain_steps_total"), "1000");
  EXPECT_EQ(Value("refrain_steps_without_memory_total"), "3");
  EXPECT_EQ(Vllm("num_preemptions_total"), "22");
  EXPECT_EQ(Vllm("corrupted_requests_total"), "5");
  EXPECT_EQ(Value("refrain_device_step_seconds_total"), "2.5");
  EXPECT_EQ(Value("refrain_device_idle_seconds_total"), "0.5");
  EXPECT_EQ(Value("refrain_device_unrecorded_steps_total"), "7");
}

TEST_F(MetricsTest, TellsWhoWaitsForWhat) {
  Load();
  engine_.SetCounts({.queued_requests = 1, .waiting_sequences = 9, .deferred_sequences = 2});
  EXPECT_EQ(Vllm("num_requests_waiting"), "9");
  EXPECT_EQ(Vllm("num_requests_waiting_by_reason", "reason=\"capacity\""), "7");
  EXPECT_EQ(Vllm("num_requests_waiting_by_reason", "reason=\"deferred\""), "2");
}

TEST_F(MetricsTest, SumsSteps) {
  Load();
  observer().OnStep({.decode_rows = 3,
                     .prefill_rows = 29,
                     .sequences = 4,
                     .decode_keys = 1000,
                     .shared_decode_keys = 750,
                     .turn_seconds = 0.5,
                     .model_seconds = 0.25,
                     .scheduling_seconds = 0.25,
                     .planning_seconds = 0.1875,
                     .plan_seconds = 0.125});
  EXPECT_EQ(Value("refrain_rows_total{kind=\"decode\"}"), "3");
  EXPECT_EQ(Value("refrain_rows_total{kind=\"prefill\"}"), "29");
  EXPECT_EQ(Value("refrain_decode_keys_total"), "1000");
  EXPECT_EQ(Value("refrain_decode_chunk_first_keys_total"), "750");
  EXPECT_EQ(Value("refrain_step_plan_seconds_total"), "0.125");
  EXPECT_EQ(Value("refrain_step_planning_seconds_total"), "0.1875");
  EXPECT_EQ(Value("refrain_step_model_seconds_total"), "0.25");
  EXPECT_EQ(Vllm("iteration_tokens_total_sum"), "32");
  EXPECT_EQ(Value("refrain_step_duration_seconds_bucket{le=\"0.5\"}"), "1");
}

// The buckets that dashboards expect: vllm/v1/metrics/loggers.py.
TEST_F(MetricsTest, HasVllmsBuckets) {
  Load();
  const std::string page = metrics_.Page();
  const auto bounds = [&](const std::string& name) {
    std::string found;
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("vllm:" + name + "_bucket{")) continue;
      const size_t begin = line.find("le=\"") + 4;
      found += line.substr(begin, line.find('"', begin) - begin) + " ";
    }
    return found;
  };
  const std::string kGap =
      "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 "
      "+Inf ";
  const std::string kRequest =
      "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 "
      "1920.0 7680.0 +Inf ";
  const std::string kCounts =
      "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0 +Inf ";  // of 4,096 tokens
  EXPECT_EQ(bounds("time_to_first_token_seconds"),
            "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 "
            "80.0 160.0 "
            "640.0 2560.0 +Inf ");
  EXPECT_EQ(bounds("inter_token_latency_seconds"), kGap);
  EXPECT_EQ(bounds("request_time_per_output_token_seconds"), kGap);
  for (const char* name : {"e2e_request_latency_seconds", "request_queue_time_seconds",
                           "request_inference_time_seconds", "request_prefill_time_seconds",
                           "request_decode_time_seconds"}) {
    EXPECT_EQ(bounds(name), kRequest) << name;
  }
  for (const char* name :
       {"request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens",
        "request_params_max_tokens", "request_prefill_kv_computed_tokens"}) {
    EXPECT_EQ(bounds(name), kCounts) << name;
  }
  EXPECT_EQ(bounds("iteration_tokens_total"),
            "1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0 16384.0 +Inf ");
  EXPECT_EQ(bounds("request_params_n"), "1.0 2.0 5.0 10.0 20.0 +Inf ");
}

// vLLM's boards select le="1.0", and boards over both servers sum by (le).
TEST_F(MetricsTest, SpellsBoundsAsPythonDoes) {
  Load();
  http::Exchange exchange;
  exchange.method = "POST";
  exchange.route = "/v1/completions";
  exchange.seconds = 0.25;
  exchange.principal = "5";
  metrics_.CountExchange(exchange);
  exchange.principal = "a,le=\"5";
  metrics_.CountExchange(exchange);
  exchange.principal = "b,le=";
  metrics_.CountExchange(exchange);
  EXPECT_EQ(Value("http_request_duration_highr_seconds_bucket{le=\"1.0\"}"), "3");
  EXPECT_EQ(Value("http_request_duration_highr_seconds_bucket{le=\"1.5\"}"), "3");
  EXPECT_EQ(Value("http_request_duration_highr_seconds_bucket{le=\"+Inf\"}"), "3");
  EXPECT_EQ(Value("http_request_duration_highr_seconds_bucket{le=\"1\"}"), "");
  const std::string labels = "{handler=\"/v1/completions\",code=\"0\",key=";
  EXPECT_EQ(Value("refrain_http_responses_total" + labels + "\"5\"}"), "1") << metrics_.Page();
  EXPECT_EQ(Value("refrain_http_responses_total" + labels + "\"a,le=\\\"5\"}"), "1");
  EXPECT_EQ(Value("refrain_http_responses_total" + labels + "\"b,le=\"}"), "1");
}

// Expected values: floatToGoString of prometheus_client/utils.py.
TEST_F(MetricsTest, SpellsBoundsOfMillionsAsPythonDoes) {
  const FakeEngine large({.max_context_tokens = 50'000'000});
  Metrics metrics({});
  metrics.SetEngine(&large);
  const std::string page = metrics.Page();
  for (const char* bound : {"500000.0", "1e+06", "2e+06", "5e+06", "1e+07", "+Inf"}) {
    const std::string line =
        "vllm:request_prompt_tokens_bucket{" + std::string(kModel) + ",le=\"" + bound + "\"} 0\n";
    EXPECT_NE(page.find(line), std::string::npos) << bound;
  }
}

TEST_F(MetricsTest, TellsVllmsBoardsThatItIsAwake) {
  Load();
  EXPECT_EQ(Vllm("engine_sleep_state", "sleep_state=\"awake\""), "1");
  EXPECT_EQ(Vllm("engine_sleep_state", "sleep_state=\"weights_offloaded\""), "0");
  EXPECT_EQ(Vllm("engine_sleep_state", "sleep_state=\"discard_all\""), "0");
}

TEST_F(MetricsTest, CountsExchangesAsFastapisInstrumentatorDoes) {
  http::Exchange exchange;
  exchange.method = "POST";
  exchange.route = "/v1/completions";
  exchange.principal = "team-a";
  exchange.status = 200;
  exchange.request_body_bytes = 30;
  exchange.response_bytes = 500;
  exchange.seconds = 0.25;
  metrics_.CountExchange(exchange);
  exchange.status = 429;
  metrics_.CountExchange(exchange);
  const std::string handler = "handler=\"/v1/completions\"";
  EXPECT_EQ(Value("http_requests_total{" + handler + ",method=\"POST\",status=\"2xx\"}"), "1");
  EXPECT_EQ(Value("http_requests_total{" + handler + ",method=\"POST\",status=\"4xx\"}"), "1");
  EXPECT_EQ(Value("http_request_size_bytes_sum{" + handler + "}"), "60");
  EXPECT_EQ(Value("http_response_size_bytes_count{" + handler + "}"), "2");
  EXPECT_EQ(
      Value("http_request_duration_seconds_bucket{" + handler + ",method=\"POST\",le=\"0.5\"}"),
      "2");
  EXPECT_EQ(Value("http_request_duration_highr_seconds_sum"), "0.5");
  EXPECT_EQ(Value("refrain_http_responses_total{" + handler + ",code=\"429\",key=\"team-a\"}"),
            "1");
}

TEST_F(MetricsTest, ShowsAReaderTheNameOfItsOwnKeyOnly) {
  http::Exchange exchange;
  exchange.method = "POST";
  exchange.route = "/v1/completions";
  exchange.status = 200;
  rpc::CallRecord call;
  call.path = "/refrain.v1.Inference/Chat";
  for (const char* key : {"", "team-a", "team-b", "team-c", "team-c"}) {
    exchange.principal = call.principal = key;
    metrics_.CountExchange(exchange);
    metrics_.CountCall(call);
  }
  const std::string all = metrics_.Page(), some = metrics_.Page(ShownKeys("team-a"));
  for (const std::string series :
       {"refrain_http_responses_total{handler=\"/v1/completions\",code=\"200\"",
        "refrain_grpc_calls_total{method=\"/refrain.v1.Inference/Chat\",code=\"OK\""}) {
    EXPECT_THAT(all, HasSubstr(series + ",key=\"team-c\"} 2\n"));
    EXPECT_THAT(some, HasSubstr(series + ",key=\"\"} 1\n"));
    EXPECT_THAT(some, HasSubstr(series + ",key=\"team-a\"} 1\n"));
    EXPECT_THAT(some, HasSubstr(series + ",key=\"(others)\"} 3\n"));
  }
  EXPECT_THAT(some, Not(HasSubstr("team-b")));
  EXPECT_THAT(some, Not(HasSubstr("team-c")));
}

// What clients make up must not become labels: each would cost memory for ever.
TEST_F(MetricsTest, TakesNoLabelsFromClients) {
  for (int i = 0; i < 100; ++i) {
    const std::string text = "/made-up/" + std::to_string(i);
    http::Exchange exchange;
    exchange.method = text;
    exchange.path = text;
    exchange.status = 404;
    metrics_.CountExchange(exchange);
  }
  EXPECT_EQ(Value("http_requests_total{handler=\"none\",method=\"other\",status=\"4xx\"}"), "100");
  EXPECT_THAT(metrics_.Page(), Not(HasSubstr("made-up")));
}

TEST_F(MetricsTest, CountsTheWayOfATokenToTheSocket) {
  metrics_.CountTokenToSocket(150e-6);
  metrics_.CountTokenToSocket(250e-6);
  EXPECT_EQ(Value("refrain_token_to_socket_seconds_bucket{le=\"0.0002\"}"), "1");
  EXPECT_EQ(Value("refrain_token_to_socket_seconds_bucket{le=\"0.0003\"}"), "2");
  EXPECT_EQ(Value("refrain_token_to_socket_seconds_count"), "2");
}

TEST_F(MetricsTest, TellsWhatBecameOfConnections) {
  metrics_.http_connections()->accepted = 5;
  metrics_.http_connections()->refused = 2;
  metrics_.http_connections()->evicted = 3;
  metrics_.grpc_connections()->refused = 1;
  metrics_.grpc_connections()->accept_errors = 4;
  EXPECT_EQ(Value("refrain_connections_accepted_total{front_end=\"http\"}"), "5");
  EXPECT_EQ(Value("refrain_connections_refused_total{front_end=\"http\"}"), "2");
  EXPECT_EQ(Value("refrain_connections_evicted_total{front_end=\"http\"}"), "3");
  EXPECT_EQ(Value("refrain_connections_accepted_total{front_end=\"grpc\"}"), "0");
  EXPECT_EQ(Value("refrain_connections_refused_total{front_end=\"grpc\"}"), "1");
  EXPECT_EQ(Value("refrain_accept_errors_total{front_end=\"grpc\"}"), "4");
}

TEST_F(MetricsTest, TellsWhatWaitsToBeRead) {
  const auto first = std::make_shared<engine::TokenStream>();
  const auto second = std::make_shared<engine::TokenStream>();
  for (const auto& stream : {first, second}) unread_->Count(unread_->Begin(""), stream);
  engine::StreamBatch batch;
  batch.tokens.resize(10'000);
  first->Push(batch);
  EXPECT_EQ(Value("refrain_unread_answer_bytes"),
            std::to_string(10'000 * sizeof(engine::TokenEvent)));
  EXPECT_EQ(Value("refrain_unread_answers_cut_total"), "0");
  second->Push(batch);
  EXPECT_EQ(Value("refrain_unread_answers_cut_total"), "1");
}

TEST_F(MetricsTest, KeepsProbesOutOfRequestMetrics) {
  http::Exchange exchange;
  exchange.method = "GET";
  exchange.route = "/health";
  exchange.status = 503;
  metrics_.CountExchange(exchange);
  EXPECT_THAT(metrics_.Page(), Not(HasSubstr("http_requests_total{")));
  EXPECT_EQ(Value("http_request_duration_highr_seconds_count"), "0");
  EXPECT_EQ(Value("refrain_http_responses_total{handler=\"/health\",code=\"503\",key=\"\"}"), "1");
}

// More slow requests than there are workers for them; a scrape waits for none.
TEST_F(MetricsTest, AnswersWhileSlowHandlersKeepTheWorkersBusy) {
  std::atomic<bool> go = false;
  http::Router router;
  metrics_.AddRoutes(&router);
  router.Add({"GET", "/slow",
              [&](http::Request) {
                while (!go) std::this_thread::sleep_for(1ms);
                return http::MakeReply({}, "");
              },
              http::HandlerSpeed::kSlow});
  http::ServerOptions options;
  options.error_body = [](int, std::string_view) { return std::string(); };
  const auto server = *http::Server::Start(std::move(options), &router);
  std::vector<RawClient> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back(server->port());
    others.back().Send(GetRequest("/slow"));
  }
  RawClient client(server->port());
  client.Send(GetRequest("/metrics"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  go = true;
  server->Stop(0ms);
}

}  // namespace
}  // namespace refrain::server::metrics
