#include "server/form_error.h"

#include <string_view>
#include <utility>

#include "server/status_mapping.h"

namespace refrain::server {

absl::Status NamingForm(absl::Status status, const engine::OutputFormat* format) {
  if (status.ok() || format == nullptr || ParamOf(status).has_value()) return status;
  const std::string_view message(status.message().data(), status.message().size());
  const bool is_about_it =
      message.starts_with(format->field) && message.substr(format->field.size()).starts_with(": ");
  return is_about_it ? WithParam(std::move(status), format->field) : status;
}

}  // namespace refrain::server
