#ifndef REFRAIN_SERVER_VERSION_H_
#define REFRAIN_SERVER_VERSION_H_

namespace refrain::server {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_VERSION_H_
