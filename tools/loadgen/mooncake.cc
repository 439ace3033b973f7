#include "tools/loadgen/mooncake.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/json_fields.h"
#include "tools/loadgen/json_lines.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

struct Line {
  double timestamp_ms = 0;
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;
  std::vector<int64_t> hash_ids;
};

class Mooncake final : public Workload {
 public:
  Mooncake(const MooncakeOptions& options, std::unique_ptr<JsonLines> lines)
      : options_(options), lines_(std::move(lines)) {}

  absl::StatusOr<std::optional<Session>> Next() override {
    for (;;) {
      if (group_.empty()) {
        const absl::Status read = ReadGroup();
        if (!read.ok()) return read;
        if (group_.empty()) return std::optional<Session>();
      }
      const Line line = std::move(group_.front());
      group_.pop_front();
      const double start_s = (line.timestamp_ms + step_ms_ * static_cast<double>(taken_++)) / 1e3;
      if (options_.most_input_tokens > 0 && line.input_tokens > options_.most_input_tokens)
        continue;
      return std::optional<Session>(ToSession(line, start_s));
    }
  }

 private:
  absl::StatusOr<bool> ReadLine(Line* line) {
    Json object;
    const absl::StatusOr<bool> read = lines_->Next(&object);
    if (!read.ok() || !*read) return read;
    const auto timestamp = NumberField(object, "timestamp", 0, 1e15);
    if (!timestamp.ok()) return lines_->Error(timestamp.status().message());
    const auto input = CountField(object, "input_length", 1);
    if (!input.ok()) return lines_->Error(input.status().message());
    const auto output = CountField(object, "output_length", 0);
    if (!output.ok()) return lines_->Error(output.status().message());
    *line = {.timestamp_ms = *timestamp, .input_tokens = *input, .output_tokens = *output};
    const auto ids = object.find("hash_ids");
    if (ids == object.end() || !ids->is_array()) return lines_->Error("\"hash_ids\" is no array");
    for (const Json& id : *ids) {
      if (!id.is_number_integer()) return lines_->Error("\"hash_ids\" holds no whole number");
      line->hash_ids.push_back(id.get<int64_t>());
    }
    const int64_t block = options_.trace_block_tokens;
    const int64_t blocks = (*input + block - 1) / block;
    if (static_cast<int64_t>(line->hash_ids.size()) != blocks) {
      return lines_->Error(absl::StrCat("\"hash_ids\" has ", line->hash_ids.size(), " blocks of ",
                                        block, ", \"input_length\" of ", *input, " makes ",
                                        blocks));
    }
    Scale(line);
    return true;
  }

  void Scale(Line* line) const {
    const double factor = static_cast<double>(options_.block_tokens) / options_.trace_block_tokens;
    const int32_t full = static_cast<int32_t>(line->hash_ids.size()) - 1;
    const int32_t tail = line->input_tokens - full * options_.trace_block_tokens;
    line->input_tokens = full * options_.block_tokens +
                         std::max(1, static_cast<int32_t>(std::lround(tail * factor)));
    line->output_tokens =
        std::max(1, static_cast<int32_t>(std::lround(line->output_tokens * factor)));
    if (options_.output_tokens > 0) line->output_tokens = options_.output_tokens;
    if (options_.most_output_tokens > 0) {
      line->output_tokens = std::min(line->output_tokens, options_.most_output_tokens);
    }
  }

  // All requests of the next time stamp.
  absl::Status ReadGroup() {
    taken_ = 0;
    step_ms_ = 0;
    if (!ahead_.has_value()) {
      Line first;
      const absl::StatusOr<bool> read = ReadLine(&first);
      if (!read.ok() || !*read) return read.status();
      ahead_ = std::move(first);
    }
    const double timestamp_ms = ahead_->timestamp_ms;
    while (ahead_.has_value() && ahead_->timestamp_ms == timestamp_ms) {
      group_.push_back(*std::exchange(ahead_, std::nullopt));
      Line next;
      const absl::StatusOr<bool> read = ReadLine(&next);
      if (!read.ok()) return read.status();
      if (*read) ahead_ = std::move(next);
    }
    if (!ahead_.has_value()) return absl::OkStatus();
    if (ahead_->timestamp_ms < timestamp_ms) {
      return lines_->Error(absl::StrCat("\"timestamp\" ", ahead_->timestamp_ms,
                                        " is before that of the line before, ", timestamp_ms));
    }
    step_ms_ = (ahead_->timestamp_ms - timestamp_ms) / static_cast<double>(group_.size());
    return absl::OkStatus();
  }

  Session ToSession(const Line& line, double start_s) const {
    Session session;
    session.start_s = start_s;
    Turn& turn = session.turns.emplace_back();
    turn.output_tokens = line.output_tokens;
    std::string text;
    int32_t left = line.input_tokens;
    for (const int64_t id : line.hash_ids) {
      const int32_t count = std::min(left, options_.block_tokens);
      left -= count;
      const uint64_t seed = MixSeed(options_.seed, static_cast<uint64_t>(id));
      if (options_.form == PromptForm::kTokenIds) {
        AppendSynthetic(options_.form, seed, count, options_.range, "user", &turn);
      } else {
        text += SyntheticText(seed, count);
      }
    }
    if (options_.form != PromptForm::kTokenIds) turn.messages.push_back({"user", std::move(text)});
    return session;
  }

  const MooncakeOptions options_;
  std::unique_ptr<JsonLines> lines_;
  std::deque<Line> group_;     // requests of one time stamp
  std::optional<Line> ahead_;  // the first one of the next
  double step_ms_ = 0;         // between requests of the group
  int64_t taken_ = 0;          // of the group
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> OpenMooncake(const MooncakeOptions& options) {
  if (options.trace_block_tokens < 1 || options.block_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--block-tokens is ", options.block_tokens, ", must be 1 or more"));
  }
  auto lines = JsonLines::Open(options.path);
  if (!lines.ok()) return lines.status();
  return std::make_unique<Mooncake>(options, *std::move(lines));
}

}  // namespace refrain::loadgen
