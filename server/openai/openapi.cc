#include "server/openai/openapi.h"

#include <map>

#include "server/concat.h"
#include "server/json.h"
#include "server/request_limits.h"

namespace refrain::server::openai {
namespace {

// What is answered with 200, by name, and what requests consist of. Members that are only there on
// request are not required.
constexpr char kSchemas[] = R"(
"Error":{"type":"object","required":["error"],"properties":{"error":{"type":"object",
 "required":["message","type","param","code"],"properties":{"message":{"type":"string"},
 "type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}},
"Usage":{"type":"object","required":["prompt_tokens","completion_tokens","total_tokens",
 "prompt_tokens_details"],"properties":{"prompt_tokens":{"type":"integer","minimum":0},
 "completion_tokens":{"type":"integer","minimum":0},"total_tokens":{"type":"integer","minimum":0},
 "prompt_tokens_details":{"type":"object","required":["cached_tokens","cache_write_tokens"],
 "properties":{"cached_tokens":{"type":"integer","minimum":0},
 "cache_write_tokens":{"type":"integer","minimum":0},
 "cache_misses":{"type":"array","items":{"type":["object","null"],
 "required":["reason","at_token","evicted_tokens"],
 "properties":{"reason":{"enum":["never_seen","diverged","evicted","truncated","disabled"]},
 "at_token":{"type":"integer","minimum":0},
 "evicted_tokens":{"type":"integer","minimum":0}}}}}},
 "completion_tokens_details":{"type":"object","required":["reasoning_tokens"],
 "properties":{"reasoning_tokens":{"type":"integer","minimum":0}}}}},
"StopReason":{"type":["string","integer","null"]},
"TokenIds":{"type":"array","items":{"type":"integer","minimum":0}},
"PromptLogprobs":{"type":"array","items":{"type":["object","null"],"additionalProperties":
 {"type":"object","required":["logprob","rank","decoded_token"],
 "properties":{"logprob":{"type":"number"},"rank":{"type":"integer","minimum":1},
 "decoded_token":{"type":"string"}}}}},
"Completion":{"type":"object","required":["id","object","created","model","choices","usage"],
 "properties":{"id":{"type":"string"},"object":{"const":"text_completion"},
 "created":{"type":"integer"},"model":{"type":"string"},
 "usage":{"$ref":"#/components/schemas/Usage"},
 "choices":{"type":"array","items":{"type":"object",
 "required":["index","text","logprobs","finish_reason","stop_reason"],"properties":{
 "index":{"type":"integer","minimum":0},"text":{"type":"string"},
 "finish_reason":{"enum":["stop","length"]},"stop_reason":{"$ref":"#/components/schemas/StopReason"},
 "logprobs":{"type":["object","null"],"required":["tokens","token_logprobs","top_logprobs",
 "text_offset"]},"token_ids":{"$ref":"#/components/schemas/TokenIds"},
 "prompt_token_ids":{"$ref":"#/components/schemas/TokenIds"},
 "prompt_logprobs":{"$ref":"#/components/schemas/PromptLogprobs"}}}}}},
"ToolCall":{"type":"object","required":["id","type","function"],"properties":{
 "id":{"type":"string"},"type":{"const":"function"},"function":{"type":"object",
 "required":["name","arguments"],"properties":{"name":{"type":"string"},
 "arguments":{"type":"string"}}}}},
"ChatCompletion":{"type":"object","required":["id","object","created","model","choices","usage"],
 "properties":{"id":{"type":"string"},"object":{"const":"chat.completion"},
 "created":{"type":"integer"},"model":{"type":"string"},
 "usage":{"$ref":"#/components/schemas/Usage"},
 "prompt_token_ids":{"$ref":"#/components/schemas/TokenIds"},
 "prompt_logprobs":{"$ref":"#/components/schemas/PromptLogprobs"},
 "choices":{"type":"array","items":{"type":"object",
 "required":["index","message","logprobs","finish_reason","stop_reason"],"properties":{
 "index":{"type":"integer","minimum":0},"stop_reason":{"$ref":"#/components/schemas/StopReason"},
 "finish_reason":{"enum":["stop","length","tool_calls"]},
 "message":{"type":"object","required":["role","content","refusal"],"properties":{
 "role":{"const":"assistant"},"content":{"type":["string","null"]},"refusal":{"type":"null"},
 "reasoning_content":{"type":"string"},
 "tool_calls":{"type":"array","items":{"$ref":"#/components/schemas/ToolCall"}}}},
 "logprobs":{"type":["object","null"],"required":["content","refusal"]},
 "token_ids":{"$ref":"#/components/schemas/TokenIds"}}}}}},
"ResponseUsage":{"type":"object","required":["input_tokens","input_tokens_details",
 "output_tokens","output_tokens_details","total_tokens"],"properties":{
 "input_tokens":{"type":"integer","minimum":0},"output_tokens":{"type":"integer","minimum":0},
 "total_tokens":{"type":"integer","minimum":0},"output_tokens_details":{"type":"object",
 "required":["reasoning_tokens"],
 "properties":{"reasoning_tokens":{"type":"integer","minimum":0}}},
 "input_tokens_details":{"$ref":"#/components/schemas/Usage/properties/prompt_tokens_details"}}},
"OutputItem":{"oneOf":[{"type":"object","required":["id","type","status","role","content"],
 "properties":{"id":{"type":"string"},"type":{"const":"message"},
 "status":{"enum":["completed","incomplete"]},"role":{"const":"assistant"},
 "content":{"type":"array","items":{"type":"object","required":["type","text","annotations",
 "logprobs"],"properties":{"type":{"const":"output_text"},"text":{"type":"string"},
 "annotations":{"type":"array","maxItems":0},"logprobs":{"type":"array"}}}}}},
 {"type":"object","required":["id","type","status","summary","content"],"properties":{
 "id":{"type":"string"},"type":{"const":"reasoning"},
 "status":{"enum":["completed","incomplete"]},"summary":{"type":"array","maxItems":0},
 "content":{"type":"array","items":{"type":"object","required":["type","text"],
 "properties":{"type":{"const":"reasoning_text"},"text":{"type":"string"}}}}}},
 {"type":"object","required":["id","type","status","call_id","name","arguments"],"properties":{
 "id":{"type":"string"},"type":{"const":"function_call"},
 "status":{"enum":["completed","incomplete"]},"call_id":{"type":"string"},
 "name":{"type":"string"},"arguments":{"type":"string"}}}]},
"Response":{"type":"object","required":["id","object","created_at","status","error",
 "incomplete_details","instructions","model","output","parallel_tool_calls","temperature","top_p",
 "tool_choice","tools","text","reasoning","truncation","metadata","max_output_tokens",
 "previous_response_id","background","service_tier","store","usage"],"properties":{
 "id":{"type":"string"},"object":{"const":"response"},"created_at":{"type":"integer"},
 "status":{"enum":["completed","incomplete"]},"error":{"type":"null"},
 "incomplete_details":{"type":["object","null"],"required":["reason"],
 "properties":{"reason":{"const":"max_output_tokens"}}},
 "instructions":{"type":["string","null"]},"model":{"type":"string"},
 "output":{"type":"array","items":{"$ref":"#/components/schemas/OutputItem"}},
 "parallel_tool_calls":{"type":"boolean"},"temperature":{"type":"number"},
 "top_p":{"type":"number"},"tools":{"type":"array"},"text":{"type":"object"},
 "reasoning":{"type":"object"},"truncation":{"enum":["auto","disabled"]},
 "metadata":{"type":"object"},"max_output_tokens":{"type":["integer","null"]},
 "previous_response_id":{"type":"null"},"background":{"const":false},"store":{"const":false},
 "service_tier":{"const":"default"},"usage":{"$ref":"#/components/schemas/ResponseUsage"}}},
"Model":{"type":"object","required":["id","object","created","owned_by","root","parent",
 "max_model_len","permission"],"properties":{"root":{"type":"string"},"parent":{"type":"null"},
 "permission":{"type":"array"},"id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},
 "owned_by":{"type":"string"},"max_model_len":{"type":"integer","minimum":1}}},
"Models":{"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},
 "data":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}},
"Status":{"type":"object","required":["status"],"properties":{"status":{"type":"string"}}},
"Version":{"type":"object","required":["version"],"properties":{"version":{"type":"string"}}},
"Tokenized":{"type":"object","required":["count","max_model_len","tokens","token_strs"],
 "properties":{"token_strs":{"type":["array","null"],"items":{"type":"string"}},
 "count":{"type":"integer","minimum":0},"max_model_len":{"type":"integer"},
 "tokens":{"$ref":"#/components/schemas/TokenIds"}}},
"TokenizerInfo":{"type":"object","required":["tokenizer_class","model_max_length","add_bos_token",
 "bos_token","eos_token","pad_token","unk_token"],"properties":{"tokenizer_class":{"type":"string"},
 "model_max_length":{"type":"integer","minimum":1},"add_bos_token":{"type":"boolean"},
 "bos_token":{"type":["string","null"]},"eos_token":{"type":["string","null"]},
 "pad_token":{"type":["string","null"]},"unk_token":{"type":["string","null"]},
 "chat_template":{"type":"string"}}},
"Detokenized":{"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}},
"OpenApi":{"type":"object","required":["openapi","info","paths"]},
"MetricsPage":{"type":"string"},
"Cache":{"type":"object","required":["totals","engine","namespaces","nodes"],"properties":{
 "totals":{"type":"object"},"engine":{"type":"object"},
 "namespaces":{"type":"array","items":{"type":"object","required":["tenant","salted","first_chunks"]}},
 "nodes":{"type":"array","items":{"type":"object","required":["id","parent","tokens","children"]}}}},
"Stop":{"type":"string","minLength":1,"maxLength":1024},
"CacheLifetime":{"type":["string","null"],"pattern":"^[1-9][0-9]{0,5}[smhd]$"},
"CacheBreakpoint":{"type":["object","null"],"required":["mode"],"properties":{
 "mode":{"const":"explicit"},"ttl":{"$ref":"#/components/schemas/CacheLifetime"}}},
"Message":{"type":"object","required":["role"],"anyOf":[
 {"properties":{"role":{"enum":["assistant","tool"]}}},
 {"required":["content"],"properties":{"content":{"type":["string","array"]}}}],"properties":{
 "role":{"type":"string","minLength":1,"maxLength":64},
 "content":{"anyOf":[{"type":["string","null"]},{"type":"array","items":{"properties":{
 "prompt_cache_breakpoint":{"$ref":"#/components/schemas/CacheBreakpoint"}},"anyOf":[
 {"type":"string"},{"type":"object","required":["type"],"properties":{
 "type":{"enum":["text","input_text","output_text"]},"text":{"type":["string","null"]}}},
 {"type":"object","required":["type"],
 "properties":{"type":{"const":"refusal"},"refusal":{"type":["string","null"]}}},
 {"type":"object","required":["type"],
 "properties":{"type":{"const":"thinking"},"thinking":{"type":["string","null"]}}}]}}]},
 "name":{"type":["string","null"]},"tool_call_id":{"type":["string","null"]},
 "tool_calls":{"type":["array","null"],"items":{"$ref":"#/components/schemas/MadeToolCall"}}}},
"MadeToolCall":{"type":"object","properties":{"id":{"type":["string","null"]},
 "type":{"type":["string","null"]}},"anyOf":[{"required":["function"],"properties":{
 "function":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}}},
 {"required":["name"],"properties":{"name":{"type":"string"},"function":{"type":"null"}}}]},
"Tool":{"type":"object","required":["function"],"properties":{"function":{"type":"object",
 "required":["name"],"properties":{"name":{"type":"string"},
 "parameters":{"type":["object","null"]}}}}},
"FunctionTool":{"type":"object","required":["type","name"],"properties":{
 "type":{"const":"function"},"name":{"type":"string"},"parameters":{"type":["object","null"]}}},
"JsonSchema":{"type":["object","null"]},
"ResponseFormat":{"type":["object","null"],"required":["type"],"anyOf":[
 {"properties":{"type":{"const":"text"}}},
 {"properties":{"type":{"const":"json_object"},
 "schema":{"$ref":"#/components/schemas/JsonSchema"},
 "json_schema":{"enum":[null,"",[],{}]},"response_schema":{"enum":[null,"",[],{}]}}},
 {"required":["json_schema"],"properties":{"type":{"const":"json_schema"},
 "json_schema":{"type":"object","required":["schema"],
 "properties":{"name":{"type":["string","null"]},
 "description":{"type":["string","null"]},"strict":{"type":["boolean","null"]},
 "schema":{"type":"object"}}}}},
 {"required":["schema"],"properties":{"type":{"const":"json_schema"},
 "json_schema":{"type":"null"},"name":{"type":["string","null"]},
 "description":{"type":["string","null"]},"strict":{"type":["boolean","null"]},
 "schema":{"type":"object"}}},
 {"type":"null"}]},
"TextFormat":{"type":["object","null"],"required":["type"],"anyOf":[
 {"properties":{"type":{"const":"text"}}},
 {"properties":{"type":{"const":"json_object"},
 "schema":{"$ref":"#/components/schemas/JsonSchema"},
 "json_schema":{"enum":[null,"",[],{}]},"response_schema":{"enum":[null,"",[],{}]}}},
 {"required":["schema"],"properties":{"type":{"const":"json_schema"},
 "name":{"type":["string","null"]},"description":{"type":["string","null"]},
 "strict":{"type":["boolean","null"]},"schema":{"type":"object"}}},
 {"type":"null"}]},
"StructuredOutputs":{"anyOf":[{"enum":[null,"",[],{}]},
 {"type":"object","additionalProperties":{"type":"null"},"properties":{
 "json":{"type":["object","string","null"]},"regex":{"type":["string","null"],"minLength":1},
 "choice":{"type":["array","null"],"minItems":1,"maxItems":1024,
 "items":{"type":"string","minLength":1}},"json_object":{"type":["boolean","null"]},
 "grammar":{"type":["string","null"],"minLength":1},"structural_tag":{"enum":[null,"",[],{}]},
 "disable_any_whitespace":{},"disable_additional_properties":{},"disable_fallback":{},
 "whitespace_pattern":{}}}]},
"ToolChoice":{"anyOf":[{"enum":["auto","none","required",null]},
 {"type":"object","required":["type","function"],"properties":{"type":{"const":"function"},
 "function":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}}},
 {"type":"object","required":["type","allowed_tools"],"properties":{
 "type":{"const":"allowed_tools"},"allowed_tools":{"type":"object","required":["mode","tools"],
 "properties":{"mode":{"enum":["auto","required"]},"tools":{"type":"array","minItems":1,
 "maxItems":1024,"items":{"$ref":"#/components/schemas/ToolChoice/anyOf/1"}}}}}}]},
"ResponseToolChoice":{"anyOf":[{"enum":["auto","none","required",null]},
 {"type":"object","required":["type","name"],"properties":{"type":{"const":"function"},
 "name":{"type":"string"}}},
 {"type":"object","required":["type","mode","tools"],"properties":{
 "type":{"const":"allowed_tools"},"mode":{"enum":["auto","required"]},"tools":{"type":"array",
 "minItems":1,"maxItems":1024,
 "items":{"$ref":"#/components/schemas/ResponseToolChoice/anyOf/1"}}}}]},
"InputContent":{"anyOf":[{"type":"string"},
 {"$ref":"#/components/schemas/Message/properties/content/anyOf/1"}]},
"ReasoningParts":{"type":["array","null"],"items":{"type":"object","required":["text"],
 "properties":{"text":{"type":"string"}}}},
"InputItem":{"anyOf":[
 {"type":"object","required":["role","content"],"properties":{"type":{"enum":["message",null]},
 "role":{"enum":["user","system","developer","assistant"]},
 "content":{"$ref":"#/components/schemas/InputContent"}}},
 {"type":"object","required":["role"],"properties":{"type":{"enum":["message",null]},
 "role":{"const":"assistant"},"content":{"type":"null"}}},
 {"type":"object","required":["type","call_id","name"],"properties":{
 "type":{"const":"function_call"},"call_id":{"type":"string"},"name":{"type":"string"}}},
 {"type":"object","required":["type","call_id","output"],"properties":{
 "type":{"const":"function_call_output"},"call_id":{"type":"string"},
 "output":{"$ref":"#/components/schemas/InputContent"}}},
 {"type":"object","required":["type"],"properties":{"type":{"const":"reasoning"},
 "content":{"$ref":"#/components/schemas/ReasoningParts"},
 "summary":{"$ref":"#/components/schemas/ReasoningParts"}}}]},
"TokenizeRequest":{"type":"object","oneOf":[
 {"required":["prompt"],"properties":{"prompt":{"type":"string"},"messages":{"type":"null"}}},
 {"required":["messages"],"properties":{"prompt":{"type":"null"},
 "messages":{"$ref":"#/components/schemas/ChatCompletionRequest/properties/messages"},
 "tools":{"$ref":"#/components/schemas/ChatCompletionRequest/properties/tools"}}}],
 "not":{"required":["add_generation_prompt","continue_final_message"],"properties":{
 "add_generation_prompt":{"const":true},"continue_final_message":{"const":true}}},
 "properties":{"model":{"$ref":"#/components/schemas/CompletionRequest/properties/model"},
 "prompt":{"type":["string","null"]},"add_special_tokens":{"type":["boolean","null"]},
 "return_token_strs":{"type":["boolean","null"]},"messages":{"type":["array","null"]},
 "tools":{"type":["array","null"]},"chat_template_kwargs":{"type":["object","null"]},
 "reasoning_effort":{},
 "documents":{"type":["array","null"],"items":{"type":"object"}},"chat_template":{"type":"null"},
 "add_generation_prompt":{"type":["boolean","null"]},
 "continue_final_message":{"type":["boolean","null"]}}}
)";

constexpr char kIdParameter[] =
    R"({"name":"id","in":"path","required":true,"schema":{"type":"string"}})";
constexpr char kTimeoutParameter[] =
    R"({"name":"X-Request-Timeout","in":"header","description":"Seconds the request may take",)"
    R"("schema":{"type":"number","minimum":0.001,"maximum":1000000}})";
constexpr char kCacheParameters[] =
    R"({"name":"limit","in":"query","description":"Nodes that are shown, at most",)"
    R"("schema":{"type":"integer","minimum":1,"maximum":100000}},)"
    R"({"name":"depth","in":"query","description":"Levels of the tree that are shown",)"
    R"("schema":{"type":"integer","minimum":1,"maximum":1000000}})";
constexpr char kJson[] = "application/json";

struct Operation {
  const char* method;
  const char* path;
  const char* id;
  const char* summary;
  const char* request;  // schema of the body; null: there is none
  const char* answer;   // schema of the answer
  const char* parameters = "";
  bool streams = false;
  const char* content_type = kJson;
};

constexpr Operation kOperations[] = {
    {"POST", "/v1/completions", "createCompletion", "Text that continues a prompt",
     "CompletionRequest", "Completion", kTimeoutParameter, true},
    {"POST", "/v1/chat/completions", "createChatCompletion", "The assistant's next message",
     "ChatCompletionRequest", "ChatCompletion", kTimeoutParameter, true},
    {"POST", "/v1/responses", "createResponse", "The assistant's next text and function calls",
     "ResponsesRequest", "Response", kTimeoutParameter, true},
    {"GET", "/v1/models", "listModels", "The model that is served", nullptr, "Models"},
    {"GET", "/v1/models/*", "retrieveModel", "The model of that name", nullptr, "Model",
     kIdParameter},
    {"POST", "/tokenize", "tokenize", "Token ids of a text", "TokenizeRequest", "Tokenized",
     kTimeoutParameter},
    {"POST", "/detokenize", "detokenize", "Text of token ids", "DetokenizeRequest", "Detokenized"},
    {"GET", "/tokenizer_info", "tokenizerInfo", "What the model's files say of its tokenizer",
     nullptr, "TokenizerInfo"},
    {"GET", "/health", "health", "Whether the engine lives", nullptr, "Status"},
    {"GET", "/ready", "ready", "Whether new requests are taken", nullptr, "Status"},
    {"GET", "/ping", "ping", "Whether the engine lives", nullptr, "Status"},
    {"POST", "/ping", "postPing", "Whether the engine lives", nullptr, "Status"},
    {"GET", "/live", "live", "Whether the process runs", nullptr, "Status"},
    {"GET", "/version", "version", "The server's version", nullptr, "Version"},
    {"GET", "/metrics", "metrics", "What Prometheus scrapes", nullptr, "MetricsPage", "", false,
     "text/plain"},
    {"GET", "/debug/cache", "debugCache", "What the KV cache holds", nullptr, "Cache",
     kCacheParameters},
    {"GET", "/openapi.json", "openapi", "This document", nullptr, "OpenApi"},
};

const Operation* FindOrNull(const ServedRoute& route) {
  for (const Operation& operation : kOperations) {
    if (route.method == operation.method && route.path == operation.path) return &operation;
  }
  return nullptr;
}

std::string Reference(std::string_view schema) {
  return Concat("{\"$ref\":\"#/components/schemas/", schema, "\"}");
}

std::string Answers(const Operation& operation) {
  return Concat(R"("200":{"description":"The answer","content":{")", operation.content_type,
                R"(":{"schema":)", Reference(operation.answer), "}",
                operation.streams ? R"(,"text/event-stream":{"schema":{"type":"object"}})" : "",
                "}},");
}

std::string OperationObject(const ServedRoute& route) {
  const Operation* const operation = FindOrNull(route);
  std::string text = "{";
  if (operation != nullptr) {
    ConcatTo(&text, R"("operationId":")", operation->id, R"(","summary":")", operation->summary,
             R"(","parameters":[)", operation->parameters, "],");
    if (operation->request != nullptr) {
      ConcatTo(&text, R"("requestBody":{"required":true,"content":{"application/json":{"schema":)",
               Reference(operation->request), "}}},");
    }
  }
  ConcatTo(&text, R"("security":[)", route.asks_key ? R"({"key":[]})" : "", R"(],"responses":{)",
           operation != nullptr ? Answers(*operation) : "",
           R"("default":{"description":"An error","content":{"application/json":{"schema":)",
           Reference("Error"), "}}}}}");
  return text;
}

// The path items: operations by path, each path once.
std::string Paths(std::span<const ServedRoute> routes) {
  std::map<std::string, std::map<std::string, std::string>> paths;
  for (const ServedRoute& route : routes) {
    std::string path(route.path);
    if (path.ends_with('*')) path.replace(path.size() - 1, 1, "{id}");
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
    paths[path][method] = OperationObject(route);
  }
  std::string text;
  for (const auto& [path, operations] : paths) {
    ConcatTo(&text, text.empty() ? "" : ",", "\"", path, "\":{");
    std::string_view comma;
    for (const auto& [method, object] : operations) {
      ConcatTo(&text, comma, "\"", method, "\":", object);
      comma = ",";
    }
    text += "}";
  }
  return text;
}

}  // namespace

std::string OpenApiDocument(const ModelLimits& limits, std::string_view version,
                            std::span<const ServedRoute> routes) {
  std::string text = R"({"openapi":"3.1.0","info":{"title":"Refrain","version":)";
  AppendJsonString(version, &text);
  ConcatTo(&text, "},\"paths\":{", Paths(routes),
           R"(},"components":{"securitySchemes":{"key":{"type":"http","scheme":"bearer"}},)",
           "\"schemas\":{", std::string_view(kSchemas),
           ",\"CompletionRequest\":", RequestSchema(Endpoint::kCompletions, limits),
           ",\"ChatCompletionRequest\":", RequestSchema(Endpoint::kChatCompletions, limits),
           ",\"ResponsesRequest\":", RequestSchema(Endpoint::kResponses, limits),
           R"(,"DetokenizeRequest":{"type":"object","required":["tokens"],"properties":)",
           R"({"model":{"$ref":"#/components/schemas/CompletionRequest/properties/model"},)",
           R"("tokens":{"type":"array","maxItems":)", kMaxDetokenizedIds,
           R"(,"items":{"type":"integer","minimum":0,"maximum":)", limits.vocab_size - 1,
           "}}}}}}}");
  return text;
}

}  // namespace refrain::server::openai
