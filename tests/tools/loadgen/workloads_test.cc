#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tools/loadgen/mooncake.h"
#include "tools/loadgen/recorded_dialogues.h"
#include "tools/loadgen/shared_prompts.h"
#include "tools/loadgen/synthetic_prompt.h"
#include "tools/loadgen/workload_choice.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

constexpr char kTrace[] = "tests/data/cachesim-traces/mooncake_head.jsonl";
constexpr char kMtBench[] = "tests/data/load-workloads/mt_bench_head.jsonl";
constexpr char kQmSum[] = "tests/data/load-workloads/qmsum_two_meetings.jsonl";

std::vector<Session> ReadAll(absl::StatusOr<std::unique_ptr<Workload>> workload) {
  std::vector<Session> sessions;
  EXPECT_TRUE(workload.ok()) << workload.status();
  if (!workload.ok()) return sessions;
  for (;;) {
    auto session = (*workload)->Next();
    EXPECT_TRUE(session.ok()) << session.status();
    if (!session.ok() || !session->has_value()) return sessions;
    sessions.push_back(**std::move(session));
  }
}

std::vector<Session> Take(Workload* workload, int count) {
  std::vector<Session> sessions;
  for (int i = 0; i < count; ++i) sessions.push_back(**workload->Next());
  return sessions;
}

// The error of the first session that cannot be read.
std::string ErrorOf(absl::StatusOr<std::unique_ptr<Workload>> workload) {
  if (!workload.ok()) return std::string(workload.status().message());
  for (;;) {
    const auto session = (*workload)->Next();
    if (!session.ok()) return std::string(session.status().message());
    if (!session->has_value()) return "";
  }
}

class WorkloadFile : public ::testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = folder_.path() + "/workload";
    std::ofstream(path) << text;
    return path;
  }
  testing::TemporaryDirectory folder_;
};

size_t SharedPrefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  size_t same = 0;
  while (same < a.size() && same < b.size() && a[same] == b[same]) ++same;
  return same;
}

// --- made-up prompts ---

TEST(SharedPrompts, ShareExactlyTheSystemPromptAndNothingElse) {
  auto workload =
      MakeSharedPrompts({.shared_tokens = 200, .unique_tokens = 30, .output_tokens = 7});
  ASSERT_TRUE(workload.ok());
  const auto sessions = Take(workload->get(), 20);
  for (size_t i = 0; i < sessions.size(); ++i) {
    const Turn& turn = sessions[i].turns.at(0);
    EXPECT_EQ(turn.token_ids.size(), 230u);
    EXPECT_EQ(turn.output_tokens, 7);
    for (const int32_t id : turn.token_ids) EXPECT_TRUE(id >= 1000 && id < 30000);
    for (size_t j = 0; j < i; ++j) {
      const size_t same = SharedPrefix(turn.token_ids, sessions[j].turns[0].token_ids);
      EXPECT_GE(same, 200u);
      EXPECT_LE(same, 202u);
    }
  }
}

TEST(SharedPrompts, UsesAsManyPromptsAndAsOftenAsAskedFor) {
  auto workload = MakeSharedPrompts(
      {.shared_share = 0.75, .prompts = 4, .shared_tokens = 16, .unique_tokens = 1});
  ASSERT_TRUE(workload.ok());
  std::map<std::vector<int32_t>, int> seen;
  for (const Session& session : Take(workload->get(), 4000)) {
    const auto& ids = session.turns[0].token_ids;
    ++seen[{ids.begin(), ids.begin() + 16}];
  }
  int shared = 0;
  int prompts = 0;
  for (const auto& [prompt, count] : seen) {
    if (count == 1) continue;
    ++prompts;
    shared += count;
    EXPECT_NEAR(count, 750, 120);
  }
  EXPECT_EQ(prompts, 4);
  EXPECT_NEAR(shared, 3000, 120);
}

TEST(SharedPrompts, TurnsAddTokensOfTheirOwn) {
  auto workload =
      MakeSharedPrompts({.shared_tokens = 8, .unique_tokens = 4, .turns = 3, .think_s = 2});
  ASSERT_TRUE(workload.ok());
  const Session session = Take(workload->get(), 1)[0];
  ASSERT_EQ(session.turns.size(), 3u);
  EXPECT_EQ(session.turns[0].token_ids.size(), 12u);
  EXPECT_EQ(session.turns[0].think_s, 0);
  EXPECT_EQ(session.turns[1].token_ids.size(), 4u);
  EXPECT_EQ(session.turns[1].think_s, 2);
  EXPECT_NE(session.turns[1].token_ids, session.turns[2].token_ids);
}

TEST(SharedPrompts, AsTextHaveAWordPerTokenAndTheSystemRole) {
  auto workload =
      MakeSharedPrompts({.form = PromptForm::kChat, .shared_tokens = 50, .unique_tokens = 5});
  ASSERT_TRUE(workload.ok());
  const Turn turn = Take(workload->get(), 1)[0].turns[0];
  ASSERT_EQ(turn.messages.size(), 2u);
  EXPECT_EQ(turn.messages[0].role, "system");
  EXPECT_EQ(std::count(turn.messages[0].content.begin(), turn.messages[0].content.end(), ' '), 50);
  EXPECT_EQ(turn.messages[1].role, "user");
}

TEST(SharedPrompts, TheSeedDecidesEverything) {
  const auto first_ids = [](uint64_t seed) {
    auto workload = MakeSharedPrompts({.seed = seed});
    return Take(workload->get(), 3)[2].turns[0].token_ids;
  };
  EXPECT_EQ(first_ids(5), first_ids(5));
  EXPECT_EQ(SharedPrefix(first_ids(5), first_ids(6)), 0u);
}

TEST(SharedPrompts, RefusesOptionsOutOfRangeByName) {
  EXPECT_EQ(ErrorOf(MakeSharedPrompts({.shared_share = 1.5})),
            "--shared-share is 1.5, must be 0 to 1");
  EXPECT_EQ(ErrorOf(MakeSharedPrompts({.unique_tokens = 0})),
            "--unique-tokens is 0, must be 1 or more");
  EXPECT_NE(ErrorOf(MakeSharedPrompts({.range = {5, 5}})).find("--token-range is 5:5"),
            std::string::npos);
}

TEST(SyntheticPrompt, DrawsEvenlyFromTheWholeRange) {
  std::vector<int> counts(10);
  for (const int32_t id : SyntheticIds(3, 100000, {20, 30}))
    ++counts.at(static_cast<size_t>(id - 20));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

// --- Mooncake ---

std::vector<Json> TraceLines() {
  std::vector<Json> lines;
  std::ifstream file(kTrace);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(Mooncake, PromptsHaveTheirLengthsAndShareWhatTheirHashIdsShare) {
  const auto lines = TraceLines();
  const auto sessions = ReadAll(OpenMooncake({.path = kTrace}));
  ASSERT_EQ(sessions.size(), lines.size());
  ASSERT_GT(lines.size(), 50u);
  for (size_t i = 0; i < 50; ++i) {
    const Turn& turn = sessions[i].turns.at(0);
    EXPECT_EQ(turn.token_ids.size(), lines[i]["input_length"].get<size_t>());
    EXPECT_EQ(turn.output_tokens, lines[i]["output_length"].get<int32_t>());
    for (size_t j = 0; j < i; ++j) {
      const auto a = lines[i]["hash_ids"].get<std::vector<int32_t>>();
      const auto b = lines[j]["hash_ids"].get<std::vector<int32_t>>();
      const size_t shared = std::min(
          {SharedPrefix(a, b) * 512, turn.token_ids.size(), sessions[j].turns[0].token_ids.size()});
      const size_t same = SharedPrefix(turn.token_ids, sessions[j].turns[0].token_ids);
      EXPECT_GE(same, shared) << i << " " << j;
      EXPECT_LE(same, shared + 2) << i << " " << j;
    }
  }
}

TEST(Mooncake, RequestsOfOneTimeStampAreSpreadUpToTheNext) {
  const auto lines = TraceLines();
  const auto sessions = ReadAll(OpenMooncake({.path = kTrace}));
  double before = -1;
  for (size_t i = 0; i < sessions.size(); ++i) {
    const double stamp_s = lines[i]["timestamp"].get<double>() / 1e3;
    EXPECT_GE(*sessions[i].start_s, stamp_s);
    EXPECT_LT(*sessions[i].start_s, stamp_s + 3.5);
    if (stamp_s < lines.back()["timestamp"].get<double>() / 1e3) {
      EXPECT_GT(*sessions[i].start_s, before) << i;
    }
    before = *sessions[i].start_s;
  }
}

TEST(Mooncake, SmallerBlocksShrinkPromptsAndAnswersAlike) {
  const auto whole = ReadAll(OpenMooncake({.path = kTrace}));
  const auto small = ReadAll(OpenMooncake({.path = kTrace, .block_tokens = 64}));
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(small[i].turns[0].token_ids.size()) * 8,
                static_cast<double>(whole[i].turns[0].token_ids.size()), 8);
    EXPECT_NEAR(small[i].turns[0].output_tokens * 8, whole[i].turns[0].output_tokens, 8);
  }
}

TEST(Mooncake, LeavesOutLongPromptsAndCutsLongAnswers) {
  const auto sessions =
      ReadAll(OpenMooncake({.path = kTrace, .most_input_tokens = 4000, .most_output_tokens = 50}));
  ASSERT_GT(sessions.size(), 10u);
  EXPECT_LT(sessions.size(), TraceLines().size());
  for (const Session& session : sessions) {
    EXPECT_LE(session.turns[0].token_ids.size(), 4000u);
    EXPECT_LE(session.turns[0].output_tokens, 50);
  }
}

TEST_F(WorkloadFile, MooncakeRefusesLinesThatDoNotFitByNumberAndField) {
  const auto error = [&](const std::string& line) {
    return ErrorOf(OpenMooncake({.path = Write("\n" + line + "\n")}));
  };
  const auto expect = [&](const std::string& line, const char* text) {
    EXPECT_NE(error(line).find(std::string("line 2: ") + text), std::string::npos) << error(line);
  };
  expect("[1]", "is no JSON object");
  expect(R"({"input_length": 1, "output_length": 1, "hash_ids": [1]})", "\"timestamp\" is missing");
  expect(R"({"timestamp": 1, "input_length": 1.5, "output_length": 1, "hash_ids": [1]})",
         "\"input_length\" is no whole number");
  expect(R"({"timestamp": 1, "input_length": 513, "output_length": 1, "hash_ids": [1]})",
         "\"hash_ids\" has 1 blocks of 512, \"input_length\" of 513 makes 2");
  expect(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": ["a"]})",
         "\"hash_ids\" holds no whole number");
  EXPECT_NE(ErrorOf(OpenMooncake({.path = "no/such"})).find("no/such: cannot open"),
            std::string::npos);
}

// --- dialogues ---

std::string Conversation(const std::string& question, size_t answer_bytes) {
  return Json{{"id", "a"},
              {"conversations",
               {{{"from", "human"}, {"value", question}},
                {{"from", "gpt"}, {"value", std::string(answer_bytes, 'x')}},
                {{"from", "human"}, {"value", "and } then \" ["}},
                {{"from", "gpt"}, {"value", std::string(8, 'y')}},
                {{"from", "human"}, {"value", "without an answer"}}}}}
      .dump();
}

TEST_F(WorkloadFile, ShareGptIsReadUpToWhereItBreaksOff) {
  const std::string whole = "[" + Conversation("one", 400) + ", " + Conversation("two", 40) + ", " +
                            Conversation("three", 4);
  for (const size_t cut : {size_t{1}, size_t{20}, size_t{150}}) {
    const auto sessions =
        ReadAll(OpenShareGpt({.path = Write(whole.substr(0, whole.size() - cut))}));
    ASSERT_EQ(sessions.size(), 2u) << cut;
    EXPECT_EQ(sessions[0].turns.at(0).messages.at(0).content, "one");
    EXPECT_EQ(sessions[0].turns[0].output_tokens, 100);
    EXPECT_EQ(sessions[1].turns[0].output_tokens, 10);
  }
  EXPECT_EQ(ReadAll(OpenShareGpt({.path = Write(whole + "]")})).size(), 3u);
}

TEST_F(WorkloadFile, ShareGptTurnsEndWithTheLastAnswer) {
  const std::string path = Write("[" + Conversation("one", 400) + "]");
  const auto all = ReadAll(OpenShareGpt({.path = path, .most_turns = 0, .think_s = 3}));
  ASSERT_EQ(all.at(0).turns.size(), 2u);
  EXPECT_EQ(all[0].turns[1].messages.at(0).content, "and } then \" [");
  EXPECT_EQ(all[0].turns[1].think_s, 3);
  EXPECT_EQ(ReadAll(OpenShareGpt({.path = path, .most_turns = 1})).at(0).turns.size(), 1u);
  EXPECT_EQ(ReadAll(OpenShareGpt({.path = path, .output_tokens = 9})).at(0).turns[0].output_tokens,
            9);
  EXPECT_EQ(
      ReadAll(OpenShareGpt({.path = path, .most_output_tokens = 50})).at(0).turns[0].output_tokens,
      50);
}

// A turn's prompt is all that was said before it, the answer too.
TEST_F(WorkloadFile, ShareGptEndsBeforeATurnWhosePromptIsTooLong) {
  const std::string path = Write("[" + Conversation("one", 400) + "]");
  const auto turns = [&](int64_t most_prompt_bytes) {
    const auto sessions = ReadAll(
        OpenShareGpt({.path = path, .most_turns = 0, .most_prompt_bytes = most_prompt_bytes}));
    return sessions.empty() ? 0 : sessions[0].turns.size();
  };
  const auto second = static_cast<int64_t>(3 + 400 + std::string("and } then \" [").size());
  EXPECT_EQ(turns(2), 0u);
  EXPECT_EQ(turns(3), 1u);
  EXPECT_EQ(turns(second - 1), 1u);
  EXPECT_EQ(turns(second), 2u);
}

// A run of it would say nothing, in a table of zeros.
TEST_F(WorkloadFile, AFileWithoutASessionIsAnErrorOfAllKinds) {
  for (const WorkloadKind kind :
       {WorkloadKind::kMooncake, WorkloadKind::kShareGpt, WorkloadKind::kMtBench,
        WorkloadKind::kQmSum, WorkloadKind::kOwnLines}) {
    Options options;
    options.workload = kind;
    for (const Repeat repeat : {Repeat::kOff, Repeat::kNew, Repeat::kSame}) {
      options.repeat = repeat;
      options.file = Write("\n");
      EXPECT_NE(ErrorOf(MakeWorkload(options, PromptForm::kText)).find(": holds no "),
                std::string::npos);
      options.file = folder_.path();
      EXPECT_EQ(ErrorOf(MakeWorkload(options, PromptForm::kText)),
                folder_.path() + ": is a directory");
    }
  }
}

TEST_F(WorkloadFile, OneOfWhichTheOptionsLeaveNothingIsAnErrorToo) {
  Options options;
  options.workload = WorkloadKind::kShareGpt;
  options.file = Write("[" + Conversation("of more than a token", 400) + "]");
  options.most_input_tokens = 1;
  EXPECT_NE(ErrorOf(MakeWorkload(options, PromptForm::kChat)).find(": holds no session"),
            std::string::npos);
}

TEST_F(WorkloadFile, ALimitOfInputTokensBeyondAllPromptsLeavesNoneOut) {
  Options options;
  options.workload = WorkloadKind::kShareGpt;
  options.file = Write("[" + Conversation("one", 400) + "]");
  options.most_input_tokens = (1 << 30) + 1;  // four times that is 4 in 32 bits
  options.turns = 0;
  const auto sessions = ReadAll(MakeWorkload(options, PromptForm::kChat));
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].turns.size(), 2u);
}

TEST_F(WorkloadFile, ShareGptLeavesOutWhatIsNoDialogueAndRefusesWhatIsNoShareGpt) {
  const std::string odd =
      R"([{"conversations": [{"from": "gpt", "value": "hello"}, {"from": "human", "value": "?"}]},)"
      R"({"conversations": []}, )" +
      Conversation("two", 40) + "]";
  const auto sessions = ReadAll(OpenShareGpt({.path = Write(odd)}));
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_NE(ErrorOf(OpenShareGpt({.path = Write("[{\"id\": 1}]")}))
                .find("conversation 1 has no array \"conversations\""),
            std::string::npos);
  EXPECT_NE(ErrorOf(OpenShareGpt({.path = Write("nothing")})).find("holds no conversation"),
            std::string::npos);
}

TEST(MtBench, EachQuestionIsASessionOfItsTurns) {
  const auto sessions = ReadAll(OpenMtBench({.path = kMtBench, .most_turns = 0}));
  ASSERT_EQ(sessions.size(), 20u);
  for (const Session& session : sessions) {
    ASSERT_EQ(session.turns.size(), 2u);
    EXPECT_EQ(session.turns[0].messages.at(0).role, "user");
    EXPECT_EQ(session.turns[0].output_tokens, 128);
  }
  EXPECT_EQ(sessions[0].turns[0].messages[0].content.substr(0, 30),
            "Compose an engaging travel blo");
}

TEST(QmSum, TheQueriesOfAMeetingShareItsTranscript) {
  std::ifstream file(kQmSum);
  std::string line;
  std::vector<std::string> meetings;
  size_t queries = 0;
  size_t first_queries = 0;
  while (std::getline(file, line)) {
    const Json meeting = Json::parse(line);
    queries += meeting["general_query_list"].size() + meeting["specific_query_list"].size();
    if (first_queries == 0) first_queries = queries;
  }
  const auto sessions = ReadAll(OpenQmSum({.path = kQmSum}));
  ASSERT_EQ(sessions.size(), queries);
  ASSERT_GT(first_queries, 1u);
  const auto transcript = [&](size_t i) {
    const std::string& text = sessions[i].turns[0].messages[0].content;
    return text.substr(0, text.find("\n\nQuestion: "));
  };
  EXPECT_GT(transcript(0).size(), 5000u);
  for (size_t i = 1; i < first_queries; ++i) EXPECT_EQ(transcript(i), transcript(0));
  EXPECT_EQ(transcript(first_queries).find(transcript(0)), std::string::npos);
}

// The question counts, too.
TEST(QmSum, LeavesOutWhatIsLongerThanTheLimit) {
  const auto bytes = [](const Session& session) {
    return session.turns[0].messages[0].content.size();
  };
  size_t shortest = SIZE_MAX;
  for (const Session& session : ReadAll(OpenQmSum({.path = kQmSum}))) {
    shortest = std::min(shortest, bytes(session));
  }
  const auto sessions =
      ReadAll(OpenQmSum({.path = kQmSum, .most_prompt_bytes = static_cast<int64_t>(shortest)}));
  ASSERT_FALSE(sessions.empty());
  for (const Session& session : sessions) EXPECT_EQ(bytes(session), shortest);
}

// --- lines of one's own ---

TEST_F(WorkloadFile, OwnLinesMayBeTextIdsMessagesOrTurns) {
  const auto sessions =
      ReadAll(OpenOwnLines({.path = Write(R"({"prompt": "hello", "max_tokens": 3, "start_s": 1.5}

{"prompt": [5, 6, 7]}
{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]}
{"turns": [{"prompt": "a"}, {"prompt": "b", "think_s": 0.25, "max_tokens": 2}, {"prompt": "c"}]}
)"),
                            .think_s = 7}));
  ASSERT_EQ(sessions.size(), 4u);
  EXPECT_EQ(sessions[0].start_s, 1.5);
  EXPECT_EQ(sessions[0].turns[0].output_tokens, 3);
  EXPECT_EQ(sessions[0].turns[0].messages.at(0).content, "hello");
  EXPECT_EQ(sessions[1].turns[0].token_ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(sessions[1].turns[0].output_tokens, 16);
  EXPECT_EQ(sessions[2].turns[0].messages.at(0).role, "system");
  ASSERT_EQ(sessions[3].turns.size(), 3u);
  EXPECT_EQ(sessions[3].turns[1].think_s, 0.25);
  EXPECT_EQ(sessions[3].turns[2].think_s, 7);
}

std::string FormsOf(const std::vector<Session>& sessions) {
  std::string forms;
  for (const Session& session : sessions) {
    forms += !session.form.has_value()                ? '-'
             : *session.form == PromptForm::kTokenIds ? 'i'
             : *session.form == PromptForm::kText     ? 't'
                                                      : 'c';
  }
  return forms;
}

TEST_F(WorkloadFile, EachOfOwnLinesHasTheFormInWhichItIsWritten) {
  Options options;
  options.workload = WorkloadKind::kOwnLines;
  options.file = Write(R"({"prompt": "a"}
{"prompt": [5, 6]}
{"messages": [{"role": "user", "content": "a"}]}
{"turns": [{"prompt": "a"}, {"prompt": "b"}]}
{"turns": [{"prompt": "a"}]}
{"turns": [{"prompt": [5]}, {"prompt": [6]}]}
)");
  EXPECT_EQ(FormsOf(ReadAll(MakeWorkload(options, std::nullopt))), "ticcci");
  options.repeat = Repeat::kSame;
  auto again = MakeWorkload(options, std::nullopt);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(FormsOf(Take(again->get(), 8)), "ticcciti");
}

// --- repeated files ---

// A second pass of the same prompts would measure a server's cache.
TEST_F(WorkloadFile, EachPassOfATextIsNewFromItsBeginningAndSharesWithinItselfAsTheFirst) {
  Options options;
  options.workload = WorkloadKind::kOwnLines;
  options.file = Write("{\"prompt\": \"ab\"}\n{\"prompt\": \"ac\"}\n");
  const auto texts = [&](Repeat repeat) {
    options.repeat = repeat;
    auto workload = MakeWorkload(options, PromptForm::kText);
    std::string texts;
    for (const Session& session : Take(workload->get(), 5)) {
      texts += session.turns.at(0).messages.at(0).content + ";";
    }
    return texts;
  };
  EXPECT_EQ(texts(Repeat::kNew), "ab;ac;(2) ab;(2) ac;(3) ab;");
  EXPECT_EQ(texts(Repeat::kSame), "ab;ac;ab;ac;ab;");
}

TEST(Mooncake, EachPassHasBlocksOfItsOwn) {
  Options options;
  options.workload = WorkloadKind::kMooncake;
  options.file = kTrace;
  options.repeat = Repeat::kNew;
  const size_t lines = TraceLines().size();
  const auto first = ReadAll(OpenMooncake({.path = kTrace}));
  auto workload = MakeWorkload(options, PromptForm::kTokenIds);
  ASSERT_TRUE(workload.ok()) << workload.status();
  const auto passes = Take(workload->get(), static_cast<int>(2 * lines + 1));
  const auto ids = [&](size_t i) { return passes[i].turns[0].token_ids; };
  EXPECT_EQ(ids(0), first[0].turns[0].token_ids);
  for (const auto& [one, other] : {std::pair(size_t{0}, lines), {lines, 2 * lines}}) {
    EXPECT_LE(SharedPrefix(ids(one), ids(other)), 2u);
  }
}

TEST_F(WorkloadFile, TokenIdsCannotBeMadeNewAndAreRefusedFromTheStart) {
  Options options;
  options.workload = WorkloadKind::kOwnLines;
  options.repeat = Repeat::kNew;
  options.file = Write("{\"prompt\": \"a\"}\n{\"prompt\": [5]}\n");
  const auto refused = MakeWorkload(options, std::nullopt);
  EXPECT_NE(std::string(refused.status().message()).find("line 2: is token ids, which --repeat=on"),
            std::string::npos);
}

TEST_F(WorkloadFile, OwnLinesAllHaveTheFormThatIsAskedFor) {
  Options options;
  options.workload = WorkloadKind::kOwnLines;
  options.file =
      Write("{\"prompt\": \"a\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  EXPECT_EQ(FormsOf(ReadAll(MakeWorkload(options, PromptForm::kText))), "tt");
  EXPECT_EQ(FormsOf(ReadAll(MakeWorkload(options, PromptForm::kChat))), "cc");
  options.file = Write("{\"prompt\": [1]}\n");
  EXPECT_EQ(FormsOf(ReadAll(MakeWorkload(options, PromptForm::kTokenIds))), "i");
}

// Before any of the lines is sent; but a line that cannot be read ends the run where it stands.
TEST_F(WorkloadFile, OwnLinesThatTheirFormCannotSendAreNamedFromTheStart) {
  const auto error = [&](const std::string& last, std::optional<PromptForm> form) {
    Options options;
    options.workload = WorkloadKind::kOwnLines;
    options.file =
        Write((form == PromptForm::kTokenIds ? "{\"prompt\": [1]}" : "{\"prompt\": \"a\"}") +
              std::string("\n\n") + last + "\n");
    const auto workload = MakeWorkload(options, form);
    return workload.ok() ? "" : std::string(workload.status().message());
  };
  const std::string ids = R"({"prompt": [1, 2]})";
  const std::string both = R"({"turns": [{"prompt": [1]}, {"prompt": "a"}]})";
  for (const PromptForm form : {PromptForm::kText, PromptForm::kChat}) {
    EXPECT_NE(error(ids, form).find("line 3: is token ids, which only --prompt-form=token_ids"),
              std::string::npos);
  }
  EXPECT_NE(error(R"({"prompt": "a"})", PromptForm::kTokenIds)
                .find("line 3: is text, which --prompt-form=token_ids cannot send"),
            std::string::npos);
  for (const auto form : {std::optional<PromptForm>(), std::optional(PromptForm::kTokenIds)}) {
    EXPECT_NE(error(both, form).find("line 3: has turns of token ids and of text"),
              std::string::npos);
  }
  EXPECT_EQ(error("odd\n" + ids, PromptForm::kText), "");
  EXPECT_EQ(error("{}\n" + ids, PromptForm::kText), "");
}

TEST_F(WorkloadFile, OwnLinesNameTheFieldThatIsWrong) {
  const auto expect = [&](const std::string& line, const char* text) {
    const std::string error = ErrorOf(OpenOwnLines({.path = Write(line)}));
    EXPECT_NE(error.find(std::string("line 1: ") + text), std::string::npos) << error;
  };
  expect("{", "is no JSON object");
  expect("{}", "needs one of \"prompt\" and \"messages\"");
  expect(R"({"prompt": "a", "messages": []})", "needs one of");
  expect(R"({"prompt": 5})", "\"prompt\" is neither");
  expect(R"({"prompt": []})", "\"prompt\" is neither");
  expect(R"({"prompt": [1, "a"]})", "\"prompt\" holds \"a\"");
  expect(R"({"prompt": [-1]})", "\"prompt\" holds -1");
  expect(R"({"messages": [{"role": "user"}]})", "\"content\" is missing");
  expect(R"({"prompt": "a", "max_tokens": 0})", "\"max_tokens\" is 0");
  expect(R"({"prompt": "a", "start_s": -1})", "\"start_s\" is -1");
  expect(R"({"turns": []})", "\"turns\" is no array of turns");
  expect(R"({"turns": [5]})", "a turn is no object");
}

}  // namespace
}  // namespace refrain::loadgen
