#ifndef REFRAIN_SERVER_GRPC_GUARDED_H_
#define REFRAIN_SERVER_GRPC_GUARDED_H_

#include <exception>
#include <functional>
#include <type_traits>

#include "absl/status/status.h"
#include "server/concat.h"

namespace refrain::server::rpc {

// What `work` returns, an absl::Status or StatusOr, and INTERNAL where it throws: containers,
// Protobuf and JSON do where there is no memory. A TaskQueue catches nothing, and gRPC catches it
// without a word, and without the end of the call. Any thread.
template <typename Work>
std::invoke_result_t<Work> Guarded(Work&& work) {
  try {
    return std::invoke(work);
  } catch (const std::exception& fault) {
    return absl::InternalError(Concat("a call ended by an exception: ", fault.what()));
  }
}

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_GUARDED_H_
