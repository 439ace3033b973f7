#include "server/openai/answer_form.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "server/concat.h"
#include "server/json.h"
#include "server/openai/sampling_fields.h"
#include "server/request_limits.h"

namespace refrain::server::openai {
namespace {

using engine::OutputFormat;

// Collects what the fields ask for.
class FormReader {
 public:
  explicit FormReader(FieldReader& fields) : fields_(fields) {}

  // `response_format`, and `text.format`, where the schema's members stand beside the type.
  void ReadResponseFormat();
  void ReadTextFormat();
  void ReadStructuredOutputs();
  // Fields of the body that are a form by themselves: vLLM's older ones, and llama-server's.
  void ReadFieldsOfTheirOwn();
  // Others' names for a form, and another endpoint's: without it the answer would have any.
  void RefuseOtherNames(Endpoint endpoint);
  std::optional<OutputFormat> Take() { return std::move(form_); }

 private:
  void ReadFormat(const Json& format, const std::string& place, bool is_flat);
  // The object that has `schema`, with what describes it.
  void ReadNamedSchema(const Json& object, const std::string& place);
  void AskForSchema(const Json& value, const std::string& place);
  // Of a form that is one text.
  template <typename Form>
  void AskForText(const Json& value, const std::string& place);
  void AskForChoice(const Json& value, const std::string& place);
  void Ask(OutputFormat asked);

  FieldReader& fields_;  // of the whole body: places are full names
  std::optional<OutputFormat> form_;
};

void FormReader::Ask(OutputFormat asked) {
  if (form_.has_value()) {
    fields_.Refuse(asked.field, Concat("excludes '", form_->field,
                                       "': only one field may ask for a form of the answer"));
    return;
  }
  if (const std::string problem = FormProblem(asked); !problem.empty()) {
    return fields_.Refuse(asked.field, problem);
  }
  form_ = std::move(asked);
}

void FormReader::ReadResponseFormat() {
  fields_.Describe("response_format", R"({"$ref":"#/components/schemas/ResponseFormat"})");
  const Json* const format = fields_.ObjectOrNull("response_format");
  if (format != nullptr) ReadFormat(*format, "response_format", /*is_flat=*/false);
}

void FormReader::ReadTextFormat() {
  fields_.Describe("text", R"({"type":["object","null"],"properties":{"format":)"
                           R"({"$ref":"#/components/schemas/TextFormat"}}})");
  const Json* const text = fields_.ObjectOrNull("text");
  if (text == nullptr) return;
  FieldReader inner(*text, "text.");
  const Json* const format = inner.ObjectOrNull("format");
  fields_.Fail(inner.status());
  if (format != nullptr) ReadFormat(*format, "text.format", /*is_flat=*/true);
}

void FormReader::ReadFormat(const Json& format, const std::string& place, bool is_flat) {
  FieldReader inner(format, place + ".");
  const auto type = inner.String("type", 64);
  if (!type.has_value()) inner.Refuse("type", "is required");
  if (type == "json_object") {
    // llama-server's: the schema stands beside the type.
    const Json* const schema = inner.ObjectOrNull("schema");
    // Left out silently, any object would do.
    for (const char* const name : {"json_schema", "response_schema"}) {
      if (!IsEmpty(inner.AnyOrNull(name))) {
        inner.Refuse(name, "does not go with type \"json_object\"; the schema stands in 'schema'");
      }
    }
    fields_.Fail(inner.status());
    if (!inner.status().ok()) return;
    if (schema != nullptr) return AskForSchema(*schema, place + ".schema");
    return Ask({.form = OutputFormat::JsonObject{}, .field = place});
  }
  if (type == "json_schema" && is_flat) return ReadNamedSchema(format, place);
  if (type == "json_schema") {
    const Json* const named = inner.ObjectOrNull("json_schema");
    // llama-server's, again.
    if (named == nullptr && inner.ObjectOrNull("schema") != nullptr) {
      return ReadNamedSchema(format, place);
    }
    if (named == nullptr) inner.Refuse("json_schema", "is required");
    fields_.Fail(inner.status());
    if (named != nullptr) ReadNamedSchema(*named, place + ".json_schema");
    return;
  }
  fields_.Fail(inner.status());
  if (type == "text") return;
  fields_.Refuse(place, Concat("of type ", ShownValue(Json(type.value_or(""))),
                               " is not supported; \"text\", \"json_object\" and \"json_schema\" "
                               "are"));
}

void FormReader::ReadNamedSchema(const Json& object, const std::string& place) {
  FieldReader inner(object, place + ".");
  inner.String("name");
  inner.String("description");
  inner.Bool("strict");  // it is in any case
  const Json* const schema = inner.ObjectOrNull("schema");
  // Clients that put the schema in its place would be answered with any object.
  if (schema == nullptr) inner.Refuse("schema", "is required: the JSON Schema, an object");
  fields_.Fail(inner.status());
  if (schema != nullptr) AskForSchema(*schema, place + ".schema");
}

void FormReader::AskForSchema(const Json& value, const std::string& place) {
  OutputFormat::JsonSchema schema;
  if (const auto* const text = value.get_ptr<const std::string*>()) {
    const std::string problem = TakeSchemaText(*text, &schema);
    if (!problem.empty()) return fields_.Refuse(place, problem);
  } else if (value.is_object()) {
    schema.schema = value.dump();
  } else {
    return fields_.Refuse(
        place, Concat("must be a JSON Schema, an object or its text, not ", JsonTypeName(value)));
  }
  Ask({.form = std::move(schema), .field = place});
}

template <typename Form>
void FormReader::AskForText(const Json& value, const std::string& place) {
  const auto* const text = value.get_ptr<const std::string*>();
  if (text == nullptr) {
    return fields_.Refuse(place, Concat("must be a string, not ", JsonTypeName(value)));
  }
  Ask({.form = Form{*text}, .field = place});
}

void FormReader::AskForChoice(const Json& value, const std::string& place) {
  if (!value.is_array()) {
    return fields_.Refuse(place, Concat("must be an array of strings, not ", JsonTypeName(value)));
  }
  if (value.size() > kMaxFormChoices) {
    return fields_.Refuse(
        place, Concat("has ", value.size(), " texts; at most ", kMaxFormChoices, " are accepted"));
  }
  OutputFormat::Choice choice;
  for (const Json& text : value) {
    if (!text.is_string()) {
      return fields_.Refuse(place,
                            Concat("must be an array of strings, not of ", JsonTypeName(text)));
    }
    choice.texts.push_back(text.get<std::string>());
  }
  Ask({.form = std::move(choice), .field = place});
}

void FormReader::ReadStructuredOutputs() {
  fields_.Describe("structured_outputs", R"({"$ref":"#/components/schemas/StructuredOutputs"})");
  if (IsEmpty(fields_.AnyOrNull("structured_outputs"))) return;
  const Json* const object = fields_.ObjectOrNull("structured_outputs");
  if (object == nullptr) return;
  const std::string place = "structured_outputs.";
  FieldReader inner(*object, place);
  if (const Json* const schema = inner.AnyOrNull("json")) AskForSchema(*schema, place + "json");
  if (const Json* const regex = inner.AnyOrNull("regex")) {
    AskForText<OutputFormat::Regex>(*regex, place + "regex");
  }
  if (const Json* const choice = inner.AnyOrNull("choice")) AskForChoice(*choice, place + "choice");
  if (const Json* const grammar = inner.AnyOrNull("grammar")) {
    AskForText<OutputFormat::Ebnf>(*grammar, place + "grammar");
  }
  if (inner.Bool("json_object").value_or(false)) {
    Ask({.form = OutputFormat::JsonObject{}, .field = place + "json_object"});
  }
  // How other servers' grammars are made; what is generated is valid either way.
  for (const char* const name : {"disable_any_whitespace", "disable_additional_properties",
                                 "disable_fallback", "whitespace_pattern"}) {
    inner.Ignore(name);
  }
  // What would be left out silently may be the form that was meant.
  if (!IsEmpty(inner.AnyOrNull("structural_tag"))) {
    inner.Refuse("structural_tag", "is not supported");
  }
  const std::vector<std::string> unknown = inner.UnknownNames();
  auto next = unknown.begin();  // they come in the order of the object, where a look-up is a scan
  for (const auto& [name, value] : object->items()) {
    if (next == unknown.end() || name != *next) continue;
    ++next;
    if (!value.is_null()) inner.Refuse(name, "is not known");
  }
  fields_.Fail(inner.status());
}

void FormReader::ReadFieldsOfTheirOwn() {
  const auto read = [&](const char* name, const char* member,
                        void (FormReader::*ask)(const Json&, const std::string&)) {
    if (fields_.describes()) {
      fields_.Describe(name, Concat(R"({"anyOf":[)", kEmptySchema,
                                    R"(,{"$ref":"#/components/schemas/StructuredOutputs/anyOf/1/)",
                                    "properties/", member, R"("}]})"));
    }
    const Json* const value = fields_.AnyOrNull(name);
    if (!IsEmpty(value)) (this->*ask)(*value, name);
  };
  read("guided_json", "json", &FormReader::AskForSchema);
  read("guided_regex", "regex", &FormReader::AskForText<OutputFormat::Regex>);
  read("guided_choice", "choice", &FormReader::AskForChoice);
  read("guided_grammar", "grammar", &FormReader::AskForText<OutputFormat::Ebnf>);
  read("json_schema", "json", &FormReader::AskForSchema);
  read("grammar", "grammar", &FormReader::AskForText<OutputFormat::Ebnf>);
  for (const char* const name : {"guided_decoding_backend", "guided_whitespace_pattern"}) {
    fields_.Ignore(name);
  }
}

void FormReader::RefuseOtherNames(Endpoint endpoint) {
  const auto refuse = [&](const char* name, std::string_view problem) {
    fields_.Describe(name, kEmptySchema);
    if (!IsEmpty(fields_.AnyOrNull(name))) fields_.Refuse(name, problem);
  };
  if (endpoint == Endpoint::kResponses) {
    refuse("response_format", "is not supported here; use 'text.format'");
  }
  refuse("regex", "is not supported; use 'structured_outputs.regex'");
  refuse("ebnf", "is not supported; use 'structured_outputs.grammar'");
}

}  // namespace

std::optional<OutputFormat> ReadAnswerForm(FieldReader& fields, Endpoint endpoint) {
  FormReader reader(fields);
  if (endpoint == Endpoint::kResponses) {
    reader.ReadTextFormat();
  } else {
    reader.ReadResponseFormat();
  }
  reader.ReadStructuredOutputs();
  reader.ReadFieldsOfTheirOwn();
  reader.RefuseOtherNames(endpoint);
  return reader.Take();
}

void SetForm(std::optional<OutputFormat> form, engine::Request* request) {
  if (form.has_value()) {
    request->format = std::make_shared<const OutputFormat>(*std::move(form));
  }
}

std::string FormProblem(const OutputFormat& format) {
  const size_t bytes = format.bytes();
  if (bytes > OutputFormat::kMostBytes) {
    return Concat("takes ", bytes, " bytes; at most ", OutputFormat::kMostBytes, " are accepted");
  }
  if (const auto* const regex = std::get_if<OutputFormat::Regex>(&format.form)) {
    if (regex->pattern.empty()) return "must not be empty";
  }
  if (const auto* const ebnf = std::get_if<OutputFormat::Ebnf>(&format.form)) {
    if (ebnf->grammar.empty()) return "must not be empty";
  }
  if (const auto* const choice = std::get_if<OutputFormat::Choice>(&format.form)) {
    if (choice->texts.empty()) return "must have a text";
    for (const std::string& text : choice->texts) {
      if (text.empty()) return "must have no empty text";
    }
  }
  if (const auto* const calls = std::get_if<OutputFormat::ToolCalls>(&format.form)) {
    for (const auto& tool : calls->tools) {
      if (tool.name.empty()) return "must have no function of an empty name: none can be called so";
    }
  }
  return "";
}

std::string TakeSchemaText(std::string_view text, OutputFormat::JsonSchema* schema) {
  if (text.size() > OutputFormat::kMostBytes) {
    return Concat("has ", text.size(), " bytes; at most ", OutputFormat::kMostBytes,
                  " are accepted");
  }
  const absl::StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok()) return Concat("is not JSON: ", parsed.status().message());
  if (!parsed->is_object()) {
    return Concat("must be the JSON of an object, a JSON Schema, not of ", JsonTypeName(*parsed));
  }
  schema->schema = parsed->dump();
  return "";
}

}  // namespace refrain::server::openai
