#ifndef REFRAIN_SERVER_GRPC_METADATA_H_
#define REFRAIN_SERVER_GRPC_METADATA_H_

#include <grpcpp/support/string_ref.h>

#include <map>
#include <string_view>

namespace refrain::server::rpc {

// The first value of that name in what a client sent, "" when there is none. Lives as long as the
// metadata.
inline std::string_view MetadataValue(
    const std::multimap<::grpc::string_ref, ::grpc::string_ref>& metadata, const char* name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_METADATA_H_
