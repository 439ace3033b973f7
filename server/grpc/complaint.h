#ifndef REFRAIN_SERVER_GRPC_COMPLAINT_H_
#define REFRAIN_SERVER_GRPC_COMPLAINT_H_

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/request.h"
#include "server/concat.h"
#include "server/request_limits.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {

// The first field of a message that is wrong, while a reader goes on through the others. Inside
// grpc/ only; one thread; the limits outlive it.
class Complaint {
 public:
  explicit Complaint(const ModelLimits& limits) : limits_(limits) {}

  void Refuse(std::string_view field, std::string_view problem) {
    Fail(InvalidField(field, Concat("'", field, "' ", problem)));
  }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
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
    if (id < 0 || id >= limits_.vocab_size) {
      Refuse(field, Concat("holds ", id, "; token ids go from 0 to ", limits_.vocab_size - 1));
    }
    return engine::TokenId{id};
  }
  // Those in front of the first wrong one: a message may hold millions.
  template <typename Ids>
  std::vector<engine::TokenId> Tokens(std::string_view field, const Ids& ids) {
    std::vector<engine::TokenId> tokens;
    tokens.reserve(static_cast<size_t>(ids.size()));
    for (const int32_t id : ids) {
      const engine::TokenId token = Token(field, id);
      if (!ok()) break;
      tokens.push_back(token);
    }
    return tokens;
  }
  const ModelLimits& limits() const { return limits_; }
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  const ModelLimits& limits_;
  absl::Status status_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_COMPLAINT_H_
