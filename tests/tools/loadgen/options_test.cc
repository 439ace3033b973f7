// What the command line may say, and what of it a workload does.

#include "tools/loadgen/options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tools/loadgen/workload_choice.h"

namespace refrain::loadgen {
namespace {

std::string OptionError(const std::vector<std::string>& arguments) {
  const auto options = ParseOptions(arguments, /*seed=*/1);
  return options.ok() ? "" : std::string(options.status().message());
}

TEST(Options, BadOnesNameOptionValueAndWhatIsValid) {
  const std::string url = "--url=http://a:1";
  EXPECT_EQ(OptionError({url, "--rate=fast"}),
            "--rate: cannot use \"fast\"; valid: a number above 0");
  EXPECT_EQ(OptionError({url, "--users=0"}),
            "--users: cannot use \"0\"; valid: a whole number from 1");
  EXPECT_EQ(OptionError({url, "--arrivals=uniform"}),
            "--arrivals: cannot use \"uniform\"; valid: poisson, gamma, constant, trace, closed");
  EXPECT_EQ(OptionError({url, "--shared-share=2"}),
            "--shared-share: cannot use \"2\"; valid: a number from 0 to 1");
  for (const char* precision : {"1e-17", "9e-7", "0", "nan"}) {
    EXPECT_EQ(OptionError(
                  {url, "--sweep=1", "--slo=e2e:1", std::string("--sweep-precision=") + precision}),
              std::string("--sweep-precision: cannot use \"") + precision +
                  "\"; valid: a number from 1e-06");
  }
  EXPECT_EQ(OptionError({url, "--sweep=1", "--slo=e2e:1", "--sweep-precision=1e-6"}), "");
  EXPECT_EQ(OptionError({url, "--rate"}), "--rate needs a value: --rate=...");
  EXPECT_EQ(OptionError({url, "--speed=1"}), "there is no option --speed=1 (see --help)");
  EXPECT_EQ(OptionError({url, "rate=1"}), "there is no option rate=1 (see --help)");
  EXPECT_NE(OptionError({url, "--slo=speed:1"}).find("--slo: cannot use \"speed:1\"; valid:"),
            std::string::npos);
  EXPECT_NE(OptionError({}).find("--url"), std::string::npos);
  EXPECT_EQ(OptionError({url, "--extra-body={\"a\":1,\"a\":2}"}),
            "--extra-body: the key \"a\" occurs twice in one object");
  EXPECT_NE(OptionError({"--grpc=a:1", "--extra-body={\"a\":1}"}).find("--extra-body is for --url"),
            std::string::npos);
  EXPECT_NE(OptionError({url, "--workload=sharegpt"}).find("--file is missing"), std::string::npos);
  EXPECT_NE(OptionError({url, "--sweep=1"}).find("--sweep needs --slo"), std::string::npos);
  // What a workload has no use for would be a load that nobody asked for.
  EXPECT_NE(OptionError({url, "--max-input-tokens=9"}).find("--max-input-tokens"),
            std::string::npos);
  for (const char* kind : {"jsonl", "mt_bench"}) {
    EXPECT_NE(OptionError({url, std::string("--workload=") + kind, "--file=f", "--turns=1",
                           "--max-input-tokens=9"})
                  .find("--max-input-tokens is for"),
              std::string::npos);
  }
  EXPECT_NE(OptionError({url, "--workload=jsonl", "--file=f", "--turns=2"}).find("--turns is for"),
            std::string::npos);
  EXPECT_EQ(OptionError({url, "--workload=jsonl", "--file=f", "--max-output-tokens=9"}), "");
  EXPECT_NE(OptionError({url, "--sweep=1", "--slo=e2e:1", "--arrivals=closed"}).find("--sweep"),
            std::string::npos);
}

// They would be part of a command that measures something else than it says.
TEST(Options, WhatALoadCannotHonourIsRefusedByName) {
  struct Case {
    std::vector<std::string> load;
    std::vector<const char*> refused, taken;
  };
  const std::vector<std::string> of_prompts = {"--shared-share=0.5", "--shared-prompts=2",
                                               "--shared-tokens=8", "--unique-tokens=8"};
  for (const std::string kind : {"mooncake", "sharegpt", "mt_bench", "qmsum", "jsonl"}) {
    for (const std::string& option : of_prompts) {
      EXPECT_EQ(OptionError({"--url=http://a:1", "--workload=" + kind, "--file=f", option}),
                option.substr(0, option.find('=')) + " is for --workload=shared_prompts");
    }
  }
  for (const auto& [load, refused, taken] : std::vector<Case>{
           {{}, {"--block-tokens=64"}, {"--turns=2", "--think-s=1", "--token-range=3:5"}},
           {{"--workload=mooncake", "--file=f"},
            {"--turns=2", "--think-s=1"},
            {"--turns=1", "--turns=0", "--output-tokens=3", "--block-tokens=64",
             "--token-range=3:5", "--max-input-tokens=3", "--max-output-tokens=3"}},
           {{"--workload=sharegpt", "--file=f"},
            {"--block-tokens=64", "--token-range=3:5"},
            {"--turns=2", "--think-s=1", "--output-tokens=3"}},
           {{"--workload=mt_bench", "--file=f"},
            {"--block-tokens=64", "--token-range=3:5"},
            {"--turns=2", "--think-s=1", "--output-tokens=3"}},
           {{"--workload=qmsum", "--file=f"},
            {"--turns=2", "--think-s=1", "--block-tokens=64", "--token-range=3:5"},
            {"--turns=1", "--output-tokens=3", "--max-input-tokens=3"}},
           {{"--workload=jsonl", "--file=f"},
            {"--turns=1", "--turns=2", "--block-tokens=64", "--token-range=3:5"},
            {"--turns=0", "--think-s=1", "--output-tokens=3"}},
           {{"--arrivals=constant"},
            {"--burstiness=2", "--users=2", "--trace-speed=2"},
            {"--rate=2"}},
           {{"--arrivals=gamma"}, {"--users=2", "--trace-speed=2"}, {"--rate=2", "--burstiness=2"}},
           {{"--arrivals=closed"},
            {"--rate=2", "--burstiness=2", "--trace-speed=2"},
            {"--users=2"}},
           {{"--arrivals=trace", "--workload=jsonl", "--file=f"},
            {"--rate=2", "--burstiness=2", "--users=2"},
            {"--trace-speed=2"}},
           {{"--sweep=1", "--slo=e2e:1"}, {"--rate=2"}, {"--sweep-max=2", "--sweep-precision=1"}},
           {{},
            {"--slo-statistic=p50", "--slo-failed-share=1", "--sweep-max=2", "--sweep-precision=1"},
            {"--metric=a"}},
           {{"--metrics=off"}, {"--metric=a"}, {}}}) {
    for (const bool takes : {false, true}) {
      for (const char* option : takes ? taken : refused) {
        std::vector<std::string> arguments = {"--url=http://a:1", option};
        arguments.insert(arguments.end(), load.begin(), load.end());
        const std::string name(option, std::string_view(option).find('='));
        EXPECT_EQ(OptionError(arguments).starts_with(name + " is for "), !takes)
            << option << " with " << (load.empty() ? "nothing" : load[0]) << ": "
            << OptionError(arguments);
        if (takes) {
          EXPECT_EQ(OptionError(arguments), "");
        }
      }
    }
  }
  EXPECT_EQ(OptionError({"--grpc=a:1", "--metric=a"}),
            "--metric is for --url and --metrics=on: it is read from /metrics");
  EXPECT_EQ(OptionError({"--url=http://a:1", "--calls-per-connection=2"}),
            "--calls-per-connection is for --grpc");
  EXPECT_EQ(OptionError({"--grpc=a:1", "--calls-per-connection=2"}), "");
  EXPECT_EQ(OptionError({"--url=http://a:1", "--arrivals=closed", "--rate=2"}),
            "--rate is for --arrivals=poisson, gamma or constant, without --sweep");
}

TEST(Options, NoRateOfASweepIsAboveItsMaximum) {
  const auto error = [](const char* sweep, const char* most) {
    return OptionError({"--url=http://a:1", "--slo=e2e:1", sweep, most});
  };
  EXPECT_EQ(error("--sweep=8", "--sweep-max=4"), "--sweep: 8 is above --sweep-max=4");
  EXPECT_EQ(error("--sweep=1,16,2", "--sweep-max=8"), "--sweep: 16 is above --sweep-max=8");
  EXPECT_EQ(error("--sweep=4", "--sweep-max=4"), "");
  EXPECT_EQ(error("--sweep=1,4", "--sweep-max=4"), "");
}

TEST(Options, EveryOptionOfTheHelpIsOne) {
  const std::string help = kHelp;
  size_t found = 0;
  for (size_t at = help.find("--"); at != std::string::npos; at = help.find("--", at + 2)) {
    const size_t end = help.find_first_of("=, \n;)", at);
    const std::string name = help.substr(at, end - at);
    if (name == "--help") continue;
    EXPECT_EQ(OptionError({name + "=\x01"}).find("there is no option"), std::string::npos) << name;
    ++found;
  }
  EXPECT_GT(found, 40u);
}

TEST(Options, ARunHasAnEndByDefault) {
  EXPECT_EQ(ParseOptions({"--url=http://a:1"}, 1)->load.most_requests, 100);
  EXPECT_EQ(ParseOptions({"--url=http://a:1", "--duration-s=5"}, 1)->load.most_requests, 0);
}

TEST(Options, ASeedThatIsGivenIsThatOfTimesAndPrompts) {
  for (const auto& [arguments, seed] : std::vector<std::pair<std::vector<std::string>, uint64_t>>{
           {{"--url=http://a:1"}, 5}, {{"--url=http://a:1", "--seed=7"}, 7}}) {
    const auto options = ParseOptions(arguments, 5);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->seed, seed);
    EXPECT_EQ(options->load.arrivals.seed, seed);
  }
}

// However long the recorded answers were, and whatever a Mooncake trace's blocks are scaled by.
TEST(Options, OutputTokensAreThoseOfEveryAnswer) {
  testing::TemporaryDirectory folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string path = folder.path() + "/" + name;
    std::ofstream(path) << text;
    return "--file=" + path;
  };
  const std::string talk =
      R"([{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Well then, hello"}]}])";
  const std::string meeting =
      R"({"meeting_transcripts": [{"speaker": "A", "content": "x"}], "general_query_list": [{"query": "q", "answer": "The x of A, it seems"}]})";
  for (const std::vector<std::string>& load : std::vector<std::vector<std::string>>{
           {},
           {"--workload=mooncake", "--block-tokens=64",
            write("mooncake",
                  R"({"timestamp": 0, "input_length": 9, "output_length": 50, "hash_ids": [1]})")},
           {"--workload=sharegpt", write("sharegpt", talk)},
           {"--workload=mt_bench", write("mt_bench", R"({"turns": ["Hi"]})")},
           {"--workload=qmsum", write("qmsum", meeting)},
           {"--workload=jsonl", write("jsonl", R"({"prompt": "Hi", "max_tokens": 9})")}}) {
    SCOPED_TRACE(load.empty() ? "shared_prompts" : load[0]);
    for (const int32_t tokens : {3, 700}) {
      std::vector<std::string> arguments = {"--url=http://a:1",
                                            "--output-tokens=" + std::to_string(tokens)};
      arguments.insert(arguments.end(), load.begin(), load.end());
      const auto options = ParseOptions(arguments, /*seed=*/1);
      ASSERT_TRUE(options.ok()) << options.status();
      const auto workload = MakeWorkload(*options, PromptForm::kText);
      ASSERT_TRUE(workload.ok()) << workload.status();
      const auto session = (*workload)->Next();
      ASSERT_TRUE(session.ok() && session->has_value()) << session.status();
      EXPECT_EQ((*session)->turns[0].output_tokens, tokens);
    }
  }
}

}  // namespace
}  // namespace refrain::loadgen
