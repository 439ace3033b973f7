#include "engine/template_file.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/mapped_file.h"
#include "engine/model/quoted_name.h"

namespace refrain::engine {
namespace {

absl::Status OfKey(const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("model.chat_template_file: ", std::string(status.message())));
}

}  // namespace

absl::StatusOr<std::string> ReadTemplateFile(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{16} << 20;  // as of a model's
  absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) return OfKey(file.status());
  const std::string_view text = (*file)->text();
  if (text.empty() || text.size() > kMaxBytes) {
    return OfKey(absl::InvalidArgumentError(absl::StrCat(QuotedPath(path), " has ", text.size(),
                                                         " bytes, must have 1 to ", kMaxBytes)));
  }
  return std::string(text);
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> MakeChatTemplate(const ChatTemplateSpec& spec) {
  absl::StatusOr<std::unique_ptr<ChatTemplate>> made = ChatTemplate::Create(spec);
  if (made.ok() && !(*made)->shows_messages()) {
    return absl::NotFoundError(absl::StrCat("the chat template is ", QuotedName(spec.source),
                                            ", which shows the model no message"));
  }
  return made;
}

absl::Status OfTemplateFile(const absl::Status& status, const std::string& path) {
  return OfKey(WithPath(status, path));
}

absl::Status CheckTemplateFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadTemplateFile(path);
  if (!text.ok()) return text.status();
  ChatTemplateSpec spec;
  spec.source = *std::move(text);
  const absl::Status made = MakeChatTemplate(spec).status();
  return made.ok() ? made : OfTemplateFile(made, path);
}

}  // namespace refrain::engine
