// Times the model alone, without scheduler, sockets or text: prefill and decode of one sequence.
//
//   model_bench --model PATH [--prefill 512,2048,6000] [--decode 128] [--context 0] [--threads 0]
//               [--isa auto] [--compute auto] [--kv auto] [--tries 3]
//
// Prints tokens per second, median of the tries with the spread. Says nothing of several sequences.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "tests/support/model_harness.h"

namespace refrain {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Print(const std::string& what, std::vector<double> tokens_per_s) {
  std::sort(tokens_per_s.begin(), tokens_per_s.end());
  const double median = tokens_per_s[tokens_per_s.size() / 2];
  std::printf("%-24s %9.1f tok/s  [%.1f .. %.1f]  %.3f ms/token\n", what.c_str(), median,
              tokens_per_s.front(), tokens_per_s.back(), 1e3 / median);
  std::fflush(stdout);
}

std::vector<int32_t> Ids(int32_t count, int32_t vocab) {
  std::vector<int32_t> ids(count);
  uint32_t state = 1;
  for (int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab));
  }
  return ids;
}

int Main(std::map<std::string, std::string> args) {
  testing::HarnessOptions options;
  options.backend.threads = std::atoi(args["threads"].c_str());
  options.backend.isa = args["isa"];
  options.backend.kind = args["backend"];
  options.backend.compute_dtype = args["compute"];
  options.kv_dtype = args["kv"];
  options.step_tokens = std::atoi(args["step"].c_str());
  options.max_context_tokens = 8192;
  const auto load_begin = Clock::now();
  auto harness = testing::ModelHarness::Load(args["model"], options);
  if (!harness.ok()) {
    std::fprintf(stderr, "%s\n", harness.status().ToString().c_str());
    return 1;
  }
  const kernels::BackendInfo& info = (*harness)->backend().info();
  std::printf("%s: %s %s, %d threads, loaded in %.2f s, %.1f MiB packed\n",
              (*harness)->source().description().c_str(), info.name.c_str(), info.isa.c_str(),
              info.threads, SecondsSince(load_begin),
              (*harness)->model().resident_bytes() / 1048576.0);
  const int32_t vocab = (*harness)->model().config().vocab_size;
  const int tries = std::atoi(args["tries"].c_str());
  const auto ignore = [](int32_t, std::span<const float>) {};

  for (size_t begin = 0; begin < args["prefill"].size();) {
    const int32_t count = std::atoi(args["prefill"].c_str() + begin);
    begin = std::min(args["prefill"].find(',', begin), args["prefill"].size() - 1) + 1;
    const std::vector<int32_t> ids = Ids(count, vocab);
    std::vector<double> rates;
    for (int i = 0; i <= tries; ++i) {
      const auto start = Clock::now();
      (*harness)->Start(ids, count - 1, ignore);
      if (i > 0) rates.push_back(count / SecondsSince(start));
    }
    Print("prefill " + std::to_string(count), rates);
  }
  const int32_t decode = std::atoi(args["decode"].c_str());
  const int32_t context = std::max(1, std::atoi(args["context"].c_str()));
  if (decode > 0) {
    std::vector<double> rates;
    for (int i = 0; i <= tries; ++i) {
      int32_t next = 0;
      const auto choose = [&](int32_t, std::span<const float> logits) {
        next = static_cast<int32_t>(engine::ArgMax(logits));
      };
      (*harness)->Start(Ids(context, vocab), context - 1, choose);
      const auto start = Clock::now();
      for (int32_t step = 0; step < decode; ++step) {
        const int32_t token = next;
        (*harness)->Append({&token, 1}, 0, choose);
      }
      if (i > 0) rates.push_back(decode / SecondsSince(start));
    }
    Print("decode at " + std::to_string(context), rates);
  }
  return 0;
}

}  // namespace
}  // namespace refrain

int main(int argc, char** argv) {
  std::map<std::string, std::string> args = {{"model", refrain::testing::SmolLm2Path()},
                                             {"prefill", "512,2048,6000"},
                                             {"decode", "128"},
                                             {"context", "1"},
                                             {"threads", "0"},
                                             {"isa", "auto"},
                                             {"compute", "auto"},
                                             {"kv", "auto"},
                                             {"tries", "3"},
                                             {"step", "512"},
                                             {"backend", "auto"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(std::min<size_t>(2, strlen(argv[i])));
    if (!args.contains(name)) {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
    args[name] = argv[i + 1];
  }
  return refrain::Main(args);
}
