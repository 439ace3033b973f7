#ifndef REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_BITS_H_
#define REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_BITS_H_

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/conformance/attention_scenario.h"

// What `reproducible` promises of ChunkAttention, for any back end: the bits of a row depend on the
// row's own keys only (DESIGN section 5). Each function expects one part of it; the tests of a back
// end call them with its ways to compute.
namespace refrain::kernels {

// Computes args.out.
using AttendFunction = std::function<void(const ChunkAttentionArgs& args)>;
using MakeScenarioFunction = AttentionScenario (*)(const AttentionShape& shape);

class AttentionBits {
 public:
  AttentionBits(const AttentionShape& shape, AttendFunction attend)
      : shape_(shape), attend_(std::move(attend)) {}

  void ExpectSameAloneAndInABatch(std::span<const MakeScenarioFunction> scenarios) const;
  // Every `every`th row of each prefill, as a decode step of its own.
  void ExpectSameInPrefillAndInDecode(int every) const;
  struct Other {
    std::string name;
    AttendFunction attend;
  };
  // By other ways to compute (threads, blocks), in both modes.
  void ExpectSameOnOthersAndInBothModes(std::span<const MakeScenarioFunction> scenarios,
                                        std::span<const Other> others) const;
  // The same keys once in full chunks and once with part-full chunks and runs between them.
  void ExpectSameWhereverChunksAndRunsEnd(int keys) const;
  // Keys before SlotStep::key_begin are not read: leaving them out changes no bit when no row's
  // window reaches them, and what lies there may be gone.
  void ExpectSameWithKeysBeforeTheWindowLeftOut() const;

 private:
  std::vector<float> Attend(AttentionScenario& scenario) const;
  std::vector<float> Attend(AttentionScenario& scenario, const AttendFunction& attend,
                            AttentionMode mode) const;
  // The rows of `step` out of an output.
  std::vector<float> Rows(const std::vector<float>& out, const SlotStep& step) const;

  const AttentionShape shape_;
  const AttendFunction attend_;
};

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CONFORMANCE_ATTENTION_BITS_H_
