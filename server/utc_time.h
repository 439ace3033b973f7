#ifndef REFRAIN_SERVER_UTC_TIME_H_
#define REFRAIN_SERVER_UTC_TIME_H_

#include <string>

namespace refrain::server {

// Now, as logs write it: "2026-01-31T23:59:59.123Z". Any thread.
std::string UtcNow();

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_UTC_TIME_H_
