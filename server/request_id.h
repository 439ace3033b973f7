#ifndef REFRAIN_SERVER_REQUEST_ID_H_
#define REFRAIN_SERVER_REQUEST_ID_H_

#include <string>
#include <string_view>

namespace refrain::server {

// Whether a client's x-request-id may be echoed and logged: 1 to 128 visible ASCII characters.
bool IsAcceptableRequestId(std::string_view id);

// A fresh id: random per process, counted within it. Any thread.
std::string MakeRequestId();

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_REQUEST_ID_H_
