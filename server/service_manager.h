#ifndef REFRAIN_SERVER_SERVICE_MANAGER_H_
#define REFRAIN_SERVER_SERVICE_MANAGER_H_

#include <string_view>

namespace refrain::server {

// Tells the service manager that started this process how it stands, in the words of systemd's
// sd_notify(3): "READY=1", "STOPPING=1". The manager names a socket in the environment variable
// NOTIFY_SOCKET; without one nobody asked. Any thread. Never blocks and never fails: a manager that
// does not listen is none of a request's business.
void TellServiceManager(std::string_view state);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_SERVICE_MANAGER_H_
