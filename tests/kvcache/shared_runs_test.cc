// What running sequences share; cache_random_test checks what comes free when they leave.

#include "kvcache/shared_runs.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kvcache/cache_harness.h"

namespace refrain::kvcache {
namespace {

using ::refrain::testing::LetterHarness;

// Two prompts that begin alike; one of them has a fork.
TEST(SharedRunsTest, SharedRunsAreWhatTheSameSequencesHold) {
  LetterHarness h;
  h.Run(1, "abcdefghijklmn");  // its third chunk and the rest of the prompt are its fork's, too
  ASSERT_TRUE(h.Fork(2, 1, 14).ok());
  h.Run(3, "abcdefghxy");
  h.Run(4, "other");
  const std::vector<SequenceId> all = {SequenceId{2}, SequenceId{4}, SequenceId{3}, SequenceId{1}};
  const SharedRuns shared = h.cache->FindSharedRuns(all);
  EXPECT_EQ(shared.last_runs, (std::vector<int32_t>{0, -1, 1, 0}));
  ASSERT_EQ(shared.runs.size(), 2u);
  EXPECT_EQ(shared.runs[0].chunks, 2);  // "ijkl", "mn"
  EXPECT_EQ(shared.runs[0].holders, 2);
  EXPECT_EQ(shared.runs[0].parent, 1);
  EXPECT_EQ(shared.runs[1].chunks, 2);  // "abcd", "efgh"
  EXPECT_EQ(shared.runs[1].holders, 3);
  EXPECT_EQ(shared.runs[1].parent, -1);
}

}  // namespace
}  // namespace refrain::kvcache
