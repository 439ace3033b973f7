#include "server/form_error.h"

#include <gtest/gtest.h>

#include <string>

#include "server/status_mapping.h"

namespace refrain::server {
namespace {

std::string ParamOfError(const absl::Status& status, const engine::OutputFormat* format) {
  return ParamOf(NamingForm(status, format)).value_or("(none)");
}

// What a schema that is not understood is refused with begins with its field.
TEST(FormError, NamesTheFieldThatItBeginsWith) {
  const engine::OutputFormat tools{.form = engine::OutputFormat::ToolCalls{}, .field = "tools"};
  const auto status = absl::InvalidArgumentError("tools: f: /properties/a is not supported");
  EXPECT_EQ(ParamOfError(status, &tools), "tools");
  EXPECT_EQ(NamingForm(status, &tools).message(), status.message());
}

TEST(FormError, LeavesOtherErrorsAsTheyAre) {
  const engine::OutputFormat tools{.form = engine::OutputFormat::ToolCalls{}, .field = "tools"};
  EXPECT_EQ(ParamOfError(absl::InvalidArgumentError("tools are many"), &tools), "(none)");
  EXPECT_EQ(ParamOfError(absl::InvalidArgumentError("the prompt is empty"), &tools), "(none)");
  EXPECT_EQ(ParamOfError(absl::InvalidArgumentError("tools: x"), nullptr), "(none)");
  EXPECT_EQ(ParamOfError(InvalidField("n", "tools: x"), &tools), "n");
  EXPECT_TRUE(NamingForm(absl::OkStatus(), &tools).ok());
}

}  // namespace
}  // namespace refrain::server
