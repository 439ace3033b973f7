#ifndef REFRAIN_SERVER_GRPC_COMPLAINT_H_
#define REFRAIN_SERVER_GRPC_COMPLAINT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/request.h"
#include "server/concat.h"
#include "server/request_limits.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {

// The first field of a message that is wrong, while a reader goes on through the others. Its status
// carries the field's path from the request on (google.rpc.BadRequest), while the text has the name
// alone, as it has over HTTP. Inside grpc/ only; one thread; the limits outlive it.
class Complaint {
 public:
  // While it lives, fields are those of the member `field` of the message that was read before:
  //
  //   const Complaint::Inside sampling(complaint, "sampling");
  //   complaint.RequireRange("temperature", ...);  // params.sampling.temperature
  class Inside {
   public:
    Inside(Complaint& complaint, std::string_view field)
        : path_(complaint.path_), outer_bytes_(path_.size()) {
      ConcatTo(&path_, field, ".");
    }
    ~Inside() { path_.resize(outer_bytes_); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    std::string& path_;
    const size_t outer_bytes_;
  };

  explicit Complaint(const ModelLimits& limits) : limits_(limits) {}

  // Of a field of the message that is being read, from the request on.
  std::string PathOf(std::string_view field) const { return Concat(path_, field); }
  void Refuse(std::string_view field, std::string_view problem) {
    Fail(InvalidField(PathOf(field), Concat("'", field, "' ", problem)));
  }
  // Of one of a repeated field's values.
  void RefuseElement(std::string_view field, int index, std::string_view problem) {
    Fail(InvalidField(Concat(path_, field, "[", index, "]"), Concat("'", field, "' ", problem)));
  }
  // Its field, if it has one, is named from the request on.
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  // What a reader of HTTP's fields found: `field_of` gives the name that its field has here.
  template <typename FieldOf>
  void FailAsOverHttp(absl::Status status, FieldOf field_of) {
    if (status.ok()) return;
    if (const std::optional<std::string> param = ParamOf(status)) {
      status = WithParam(std::move(status), Concat(path_, field_of(*param)));
    }
    Fail(std::move(status));
  }
  void RequireRange(std::string_view field, double value, const Range& range) {
    if (range.Contains(value)) return;
    Refuse(field, Concat("must be ", range.Text(), ", not ", value));
  }
  void RequireAtMost(std::string_view field, int count, size_t limit, std::string_view what) {
    if (static_cast<size_t>(count) <= limit) return;
    Refuse(field, Concat("has ", count, " ", what, "; at most ", limit, " are accepted"));
  }
  engine::TokenId Token(std::string_view field, int32_t id) {
    if (const std::string problem = TokenProblem(id); !problem.empty()) Refuse(field, problem);
    return engine::TokenId{id};
  }
  // Those in front of the first wrong one: a message may hold millions.
  template <typename Ids>
  std::vector<engine::TokenId> Tokens(std::string_view field, const Ids& ids) {
    std::vector<engine::TokenId> tokens;
    tokens.reserve(static_cast<size_t>(ids.size()));
    for (const int32_t id : ids) {
      if (const std::string problem = TokenProblem(id); !problem.empty()) {
        RefuseElement(field, static_cast<int>(tokens.size()), problem);
        break;
      }
      tokens.push_back(engine::TokenId{id});
    }
    return tokens;
  }
  const ModelLimits& limits() const { return limits_; }
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  // "": none.
  std::string TokenProblem(int32_t id) const {
    if (id >= 0 && id < limits_.vocab_size) return "";
    return Concat("holds ", id, "; token ids go from 0 to ", limits_.vocab_size - 1);
  }

  const ModelLimits& limits_;
  std::string path_;  // of the message that is being read: "", "params.", "params.sampling."
  absl::Status status_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_COMPLAINT_H_
