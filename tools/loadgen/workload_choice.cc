#include "tools/loadgen/workload_choice.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/mooncake.h"
#include "tools/loadgen/recorded_dialogues.h"
#include "tools/loadgen/shared_prompts.h"
#include "tools/loadgen/synthetic_prompt.h"

namespace refrain::loadgen {
namespace {

constexpr int32_t kSharedPromptsOutputTokens = 64;

DialogueOptions DialoguesOf(const Options& options, std::optional<PromptForm> form) {
  return {.path = options.file,
          .most_turns = options.turns,
          .output_tokens = options.output_tokens,
          .most_output_tokens = options.most_output_tokens,
          .most_prompt_bytes = int64_t{options.most_input_tokens} * kBytesPerToken,
          .think_s = options.think_s,
          .form = form,
          .text_only = options.repeat == Repeat::kNew};
}

absl::StatusOr<std::unique_ptr<Workload>> OpenOnce(const Options& options,
                                                   std::optional<PromptForm> form) {
  const DialogueOptions dialogues = DialoguesOf(options, form);
  const PromptForm made_up_form = form.value_or(PromptForm::kTokenIds);
  switch (options.workload) {
    case WorkloadKind::kSharedPrompts:
      return MakeSharedPrompts({.form = made_up_form,
                                .shared_share = options.shared_share,
                                .prompts = options.shared_prompts,
                                .shared_tokens = options.shared_tokens,
                                .unique_tokens = options.unique_tokens,
                                .output_tokens = options.output_tokens > 0
                                                     ? options.output_tokens
                                                     : kSharedPromptsOutputTokens,
                                .turns = options.turns,
                                .think_s = options.think_s,
                                .range = options.token_range,
                                .seed = options.seed});
    case WorkloadKind::kMooncake:
      return OpenMooncake({.path = options.file,
                           .form = made_up_form,
                           .block_tokens = options.block_tokens,
                           .output_tokens = options.output_tokens,
                           .most_input_tokens = options.most_input_tokens,
                           .most_output_tokens = options.most_output_tokens,
                           .range = options.token_range,
                           .seed = options.seed});
    case WorkloadKind::kShareGpt:
      return OpenShareGpt(dialogues);
    case WorkloadKind::kMtBench:
      return OpenMtBench(dialogues);
    case WorkloadKind::kQmSum:
      return OpenQmSum(dialogues);
    case WorkloadKind::kOwnLines:
      return OpenOwnLines(dialogues);
  }
  return absl::InternalError("a workload that is none");
}

// Begins again at the end; a workload that gives nothing ends all the same. Of Repeat::kNew a pass
// shares no more with those before than the first token or two.
class Repeating final : public Workload {
 public:
  Repeating(const Options& options, std::optional<PromptForm> form, std::unique_ptr<Workload> first)
      : options_(options), form_(form), current_(std::move(first)) {}

  absl::StatusOr<std::optional<Session>> Next() override {
    auto session = current_->Next();
    if (session.ok() && !session->has_value()) {
      ++pass_;
      Options options = options_;
      if (options.repeat == Repeat::kNew) options.seed = MixSeed(options.seed, pass_);
      auto again = OpenOnce(options, form_);
      if (!again.ok()) return again.status();
      current_ = *std::move(again);
      session = current_->Next();
    }
    if (session.ok() && session->has_value()) Mark(&**session);
    return session;
  }

 private:
  // What a workload made up is new by its seed.
  void Mark(Session* session) const {
    if (pass_ == 1 || options_.repeat != Repeat::kNew || IsMadeUp(options_)) return;
    std::string& text = session->turns.front().messages.front().content;
    text = absl::StrCat("(", pass_, ") ", text);
  }

  const Options options_;
  const std::optional<PromptForm> form_;
  std::unique_ptr<Workload> current_;
  uint64_t pass_ = 1;
};

// A file of which nothing comes cannot be used.
class NotEmpty final : public Workload {
 public:
  NotEmpty(std::string path, std::unique_ptr<Workload> workload)
      : path_(std::move(path)), workload_(std::move(workload)) {}

  absl::StatusOr<std::optional<Session>> Next() override {
    auto session = workload_->Next();
    if (!session.ok() || session->has_value()) {
      came_ = true;
      return session;
    }
    if (came_) return session;
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": holds no session, or none that the options leave in"));
  }

 private:
  const std::string path_;
  const std::unique_ptr<Workload> workload_;
  bool came_ = false;
};

}  // namespace

bool IsMadeUp(const Options& options) {
  return options.workload == WorkloadKind::kSharedPrompts ||
         options.workload == WorkloadKind::kMooncake;
}

absl::StatusOr<std::unique_ptr<Workload>> MakeWorkload(const Options& options,
                                                       std::optional<PromptForm> form) {
  if (!IsMadeUp(options) && options.workload != WorkloadKind::kOwnLines &&
      form == PromptForm::kTokenIds) {
    return absl::InvalidArgumentError(
        "--prompt-form=token_ids: this workload is text; valid: text, chat");
  }
  std::error_code ignored;
  if (options.workload == WorkloadKind::kOwnLines &&
      std::filesystem::is_regular_file(options.file, ignored)) {
    const absl::Status sendable = CheckFormOfOwnLines(DialoguesOf(options, form));
    if (!sendable.ok()) return sendable;
  }
  auto workload = OpenOnce(options, form);
  if (!workload.ok() || options.workload == WorkloadKind::kSharedPrompts) return workload;
  if (options.repeat != Repeat::kOff) {
    workload = std::make_unique<Repeating>(options, form, *std::move(workload));
  }
  return std::make_unique<NotEmpty>(options.file, *std::move(workload));
}

}  // namespace refrain::loadgen
