#include "tools/bench/attention_goals.h"

#include <cstddef>

#include "absl/strings/str_format.h"

namespace refrain::bench {
namespace {

using kernels::DType;

// Shares of the ceilings: of reading, and of multiply-adds where everything is shared.
constexpr double kReadGoal = 0.8;
constexpr double kFlopsGoal = 0.65;
constexpr double kTileFlopsGoal = 0.35;
constexpr double kSlack = 1.1;  // of two_phase's bound
constexpr int kManyKeys = 4096;
constexpr double kSharingGoal = 3.5;
constexpr double kTileSharingGoal = 10;
constexpr size_t kLeastPairs = 20;
constexpr double kNoLossMedian = 0.97, kNoLossReaches = 0.98;

Verdict Of(bool holds) { return holds ? Verdict::kReached : Verdict::kMissed; }

Goal PagedReadsFast(const ContestResult& result, double least_s) {
  const double share = least_s / result.Median(Method::kPaged);
  return {absl::StrFormat("paged %.1f%% of its ceiling (%.0f%%)", 100 * share, 100 * kReadGoal),
          Of(share >= kReadGoal)};
}

Goal NoLoss(const ContestResult& result) {
  const Interval ratio = result.Ratio(Method::kPaged, Method::kTwoPhase);
  const size_t pairs = result.seconds[static_cast<int>(Method::kPaged)].size();
  const Goal goal = {absl::StrFormat("paged / two_phase %.3f [%.3f, %.3f] in %d pairs",
                                     ratio.median, ratio.low, ratio.high, pairs),
                     Of(ratio.median >= kNoLossMedian && ratio.high >= kNoLossReaches)};
  return {goal.measured, pairs < kLeastPairs ? Verdict::kNotJudged : goal.verdict};
}

Goal TwoPhaseWithinBound(const ContestResult& result, const AttentionModel& model, DType kv,
                         const BatchShape& shape, bool tiles) {
  Ceilings asked = result.ceilings;
  asked.read_bytes_per_s *= kReadGoal / kSlack;
  asked.flops_per_s *= (tiles ? kTileFlopsGoal : kFlopsGoal) / kSlack;
  const double bound_s = TwoPhaseLeastSeconds(asked, model, kv, shape);
  const double took = result.Median(Method::kTwoPhase) / bound_s;
  return {absl::StrFormat("%.2f ms, took %.2f of it", bound_s * 1e3, took), Of(took <= 1)};
}

Goal SharingPays(const ContestResult& result, bool tiles) {
  const double least = tiles ? kTileSharingGoal : kSharingGoal;
  const double times = result.Ratio(Method::kPaged, Method::kTwoPhase).median;
  return {absl::StrFormat("%.2f times paged (%.1f)", times, least), Of(times >= least)};
}

}  // namespace

std::string ToText(const std::vector<Goal>& goals) {
  std::string text;
  for (const auto& [measured, verdict] : goals) {
    const char* const word = verdict == Verdict::kReached  ? "reached"
                             : verdict == Verdict::kMissed ? "missed"
                                                           : "not judged";
    text += (text.empty() ? "" : "; ") + measured + ": " + word;
  }
  return text.empty() ? "-" : text;
}

std::vector<Goal> JudgeGoals(const ContestResult& result, const AttentionModel& model, DType kv,
                             const BatchShape& shape) {
  const bool tiles = result.ceilings.arithmetic == Arithmetic::kBf16Tiles;
  const Goal left_out = {"no memory for paged (--pool-gb)", Verdict::kNotJudged};
  std::vector<Goal> goals;
  if (shape.shared_keys == 0) {
    if (!result.Has(Method::kPaged)) return {left_out};
    goals.push_back(PagedReadsFast(result, PagedLeastSeconds(result.ceilings, model, kv, shape)));
    goals.push_back(NoLoss(result));
  } else if (shape.shared_keys == shape.keys) {
    goals.push_back(TwoPhaseWithinBound(result, model, kv, shape, tiles));
    if (model.num_heads == model.num_kv_heads && shape.keys >= kManyKeys) {
      goals.push_back(result.Has(Method::kPaged) ? SharingPays(result, tiles) : left_out);
    }
  }
  return goals;
}

}  // namespace refrain::bench
