#include "tools/cachesim/trace.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/json_fields.h"

namespace refrain::cachesim {
namespace {

using Json = nlohmann::json;

constexpr int32_t kMooncakeBlockTokens = 512;
constexpr int kMaxNesting = 8;

// Reads a file line by line; gzip is seen through.
class LineReader {
 public:
  static absl::StatusOr<LineReader> Open(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) {
      return absl::NotFoundError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
    }
    gzbuffer(file, 1 << 18);
    return LineReader(file);
  }

  // False at the end of the file.
  absl::StatusOr<bool> Next(std::string* line) {
    line->clear();
    char piece[1 << 14];
    while (gzgets(file_.get(), piece, sizeof(piece)) != nullptr) {
      line->append(piece);
      if (!line->empty() && line->back() == '\n') {
        line->pop_back();
        return true;
      }
    }
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END) {
      return absl::InvalidArgumentError(absl::StrCat("cannot read: ", message));
    }
    return !line->empty();
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  explicit LineReader(gzFile file) : file_(file) {}
  std::unique_ptr<gzFile_s, Close> file_;
};

// A request as the file has it.
struct RawRequest {
  int32_t session = 0;  // whose ids
  double arrival_s = 0;
  int32_t tokens = 0;
  std::vector<int64_t> ids;
  kvcache::AnswerEnd answer = kvcache::AnswerEnd::kOther;
};

// Checks that the blocks make up the prompt: `part` says whether a part-full one is listed.
absl::Status ReadBlocks(const Json& object, const char* tokens_field, int32_t block_tokens,
                        bool part, RawRequest* request) {
  const absl::StatusOr<int32_t> tokens = CountField(object, tokens_field, 0);
  if (!tokens.ok()) return tokens.status();
  request->tokens = *tokens;
  const auto ids = object.find("hash_ids");
  if (ids == object.end()) return FieldError("hash_ids", "is missing");
  if (!ids->is_array()) return FieldError("hash_ids", "is no array");
  request->ids.reserve(ids->size());
  for (const Json& id : *ids) {
    if (!id.is_number_integer()) return FieldError("hash_ids", "holds what is no whole number");
    request->ids.push_back(id.get<int64_t>());
  }
  const int64_t blocks = (int64_t{*tokens} + (part ? block_tokens - 1 : 0)) / block_tokens;
  if (static_cast<int64_t>(ids->size()) != blocks) {
    return absl::InvalidArgumentError(absl::StrCat("\"hash_ids\" has ", ids->size(), " blocks of ",
                                                   block_tokens, ", \"", tokens_field, "\" of ",
                                                   *tokens, " makes ", blocks));
  }
  return absl::OkStatus();
}

// Reads lines of one format into requests.
class TraceParser {
 public:
  explicit TraceParser(const TraceOptions& options) : options_(options) {}

  absl::Status AddLine(const std::string& line) {
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_discarded()) return absl::InvalidArgumentError("is no JSON");
    if (!object.is_object()) return absl::InvalidArgumentError("is no JSON object");
    const bool agentic = object.contains("requests");
    if (!agentic_.has_value()) agentic_ = agentic;
    if (*agentic_ != agentic) {
      return absl::InvalidArgumentError("is of the other format than the lines before");
    }
    return agentic ? AddSession(object) : AddMooncake(object);
  }

  int32_t block_tokens() const { return block_tokens_; }
  std::vector<RawRequest>& requests() { return requests_; }

 private:
  static constexpr double kMaxSeconds = 1e9;

  // Of an answer that is no call, with so many tokens as the field says.
  static kvcache::AnswerEnd TurnOf(const Json& object, const char* field) {
    const auto tokens = object.find(field);
    if (tokens == object.end() || !tokens->is_number_integer()) return kvcache::AnswerEnd::kOther;
    return tokens->get<int64_t>() <= kvcache::kBriefTurnTokens ? kvcache::AnswerEnd::kBriefTurn
                                                               : kvcache::AnswerEnd::kTurn;
  }

  absl::Status AddMooncake(const Json& object) {
    block_tokens_ = kMooncakeBlockTokens;
    RawRequest request;
    const absl::StatusOr<double> milliseconds =
        NumberField(object, "timestamp", 0, 1000 * kMaxSeconds);
    if (!milliseconds.ok()) return milliseconds.status();
    request.arrival_s = *milliseconds / 1000;
    absl::Status status = ReadBlocks(object, "input_length", block_tokens_, true, &request);
    if (!status.ok()) return status;
    // These are conversations.
    request.answer = TurnOf(object, "output_length");
    requests_.push_back(std::move(request));
    return absl::OkStatus();
  }

  absl::Status AddSession(const Json& object) {
    const absl::StatusOr<int32_t> block_tokens = CountField(object, "block_size", 0);
    if (!block_tokens.ok()) return block_tokens.status();
    if (*block_tokens < 1) return FieldError("block_size", "is 0");
    if (block_tokens_ == 0) block_tokens_ = *block_tokens;
    if (block_tokens_ != *block_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("\"block_size\" is ", *block_tokens,
                                                     ", in the lines before ", block_tokens_));
    }
    const double start_s = sessions_ * options_.session_gap_s;
    absl::Status status = AddRequests(object["requests"], start_s, 0);
    ++sessions_;
    return status;
  }

  absl::Status AddRequests(const Json& list, double start_s, int nesting) {
    if (!list.is_array()) return FieldError("requests", "is no array");
    if (nesting > kMaxNesting) return FieldError("requests", "are nested too deeply");
    for (size_t i = 0; i < list.size(); ++i) {
      if (absl::Status status = AddRequest(list[i], start_s, nesting); !status.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("request ", i + 1, ": ", std::string(status.message())));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddRequest(const Json& item, double start_s, int nesting) {
    if (!item.is_object()) return absl::InvalidArgumentError("is no JSON object");
    const absl::StatusOr<double> sent_s = NumberField(item, "t", 0, kMaxSeconds);
    if (!sent_s.ok()) return sent_s.status();
    if (const auto nested = item.find("requests"); nested != item.end()) {
      return AddRequests(*nested, start_s + *sent_s, nesting + 1);
    }
    RawRequest request{.session = sessions_, .arrival_s = start_s + *sent_s};
    if (absl::Status status = ReadBlocks(item, "in", block_tokens_, false, &request);
        !status.ok()) {
      return status;
    }
    if (const auto stop = item.find("stop"); stop != item.end()) {
      if (*stop == "tool_use") request.answer = kvcache::AnswerEnd::kToolCalls;
      if (*stop == "end_turn") request.answer = TurnOf(item, "out");
    }
    requests_.push_back(std::move(request));
    return absl::OkStatus();
  }

  const TraceOptions options_;
  std::optional<bool> agentic_;
  int32_t block_tokens_ = 0;
  int32_t sessions_ = 0;
  std::vector<RawRequest> requests_;
};

// Gives every lineage a number of its own.
class BlockNumbers {
 public:
  // Of the block `id` behind `parent`; -1 - session is the start of a prompt.
  int32_t Of(int64_t parent, int64_t id) {
    return numbers_.try_emplace({parent, id}, static_cast<int32_t>(numbers_.size())).first->second;
  }
  int32_t count() const { return static_cast<int32_t>(numbers_.size()); }

 private:
  struct Hash {
    size_t operator()(const std::pair<int64_t, int64_t>& key) const {
      uint64_t h = static_cast<uint64_t>(key.first) * 0x9e3779b97f4a7c15u;
      h = (h ^ (h >> 29) ^ static_cast<uint64_t>(key.second)) * 0xbf58476d1ce4e5b9u;
      return h ^ (h >> 32);
    }
  };
  std::unordered_map<std::pair<int64_t, int64_t>, int32_t, Hash> numbers_;
};

Trace Number(std::vector<RawRequest> raw, int32_t block_tokens) {
  std::stable_sort(raw.begin(), raw.end(), [](const RawRequest& a, const RawRequest& b) {
    return a.arrival_s < b.arrival_s;
  });
  Trace trace{.block_tokens = block_tokens};
  BlockNumbers numbers;
  for (const RawRequest& from : raw) {
    TraceRequest request{
        .arrival_s = from.arrival_s, .tokens = from.tokens, .blocks = {}, .answer = from.answer};
    int64_t parent = -1 - int64_t{from.session};
    int32_t begin_tokens = 0;
    for (const int64_t id : from.ids) {
      const int32_t known = numbers.count();
      const int32_t block = numbers.Of(parent, id);
      if (block == known) {
        trace.distinct_tokens += std::min(block_tokens, from.tokens - begin_tokens);
      }
      request.blocks.push_back(block);
      parent = block;
      begin_tokens += block_tokens;
    }
    trace.prompt_tokens += from.tokens;
    trace.requests.push_back(std::move(request));
  }
  trace.distinct_blocks = numbers.count();
  return trace;
}

}  // namespace

absl::StatusOr<Trace> ReadTrace(const std::string& path, const TraceOptions& options) {
  absl::StatusOr<LineReader> reader = LineReader::Open(path);
  if (!reader.ok()) return reader.status();
  TraceParser parser(options);
  std::string line;
  for (int64_t number = 1;; ++number) {
    const absl::StatusOr<bool> more = reader->Next(&line);
    absl::Status status = more.status();
    if (status.ok() && !*more) break;
    if (status.ok() && !line.empty()) status = parser.AddLine(line);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ", line ", number, ": ", std::string(status.message())));
    }
  }
  if (parser.requests().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds no request"));
  }
  return Number(std::move(parser.requests()), parser.block_tokens());
}

}  // namespace refrain::cachesim
