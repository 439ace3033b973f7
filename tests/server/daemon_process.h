#ifndef REFRAIN_TESTS_SERVER_DAEMON_PROCESS_H_
#define REFRAIN_TESTS_SERVER_DAEMON_PROCESS_H_

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace refrain::testing {

// The daemon's arguments: HTTP on a free port and no gRPC, and `more`.
inline std::vector<std::string> DaemonArguments(std::string model,
                                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"--model",     std::move(model), "--listen",
                                        "127.0.0.1:0", "--grpc-listen",  ""};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The daemon as a process of its own, `refraind_fake` unless said otherwise, whose output is read
// through a pipe. For one thread; it is killed with its owner.
class DaemonProcess {
 public:
  // What it is born with, beside its arguments.
  struct Surroundings {
    std::optional<rlimit> open_files;
    std::optional<rlimit> file_bytes;
    std::optional<rlimit> stack_bytes;
    std::optional<rlimit> address_bytes;
    std::optional<int> stdout_file;  // standard output, in place of the pipe
    bool full_stdout = false;        // as of a file on a full disk
    bool closed_stderr = false;      // its output is what it prints to standard output then
    std::string program = "tests/server/refraind_fake";
  };

  explicit DaemonProcess(std::vector<std::string> arguments)
      : DaemonProcess(std::move(arguments), Surroundings()) {}
  DaemonProcess(std::vector<std::string> arguments, const Surroundings& surroundings) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    arguments.insert(arguments.begin(), surroundings.program);
    std::vector<char*> argv;  // made here: other threads may be in malloc at the fork
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      if (surroundings.open_files) ::setrlimit(RLIMIT_NOFILE, &*surroundings.open_files);
      if (surroundings.file_bytes) ::setrlimit(RLIMIT_FSIZE, &*surroundings.file_bytes);
      if (surroundings.stack_bytes) ::setrlimit(RLIMIT_STACK, &*surroundings.stack_bytes);
      if (surroundings.address_bytes) ::setrlimit(RLIMIT_AS, &*surroundings.address_bytes);
      if (surroundings.stdout_file) ::dup2(*surroundings.stdout_file, STDOUT_FILENO);
      if (surroundings.full_stdout) ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO);
      if (surroundings.closed_stderr) ::close(STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_fd_ = ends[0];
  }

  ~DaemonProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(output_fd_);
  }

  void Signal(int signal) { ::kill(pid_, signal); }
  // It stands still when this returns, until a SIGCONT.
  void Pause() {
    Signal(SIGSTOP);
    int status = 0;
    if (::waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status)) std::abort();
  }

  // It gets this much more address space than it has now, or as much as it wants.
  void LimitMoreAddresses(rlim_t bytes) {
    std::ifstream sizes("/proc/" + std::to_string(pid_) + "/statm");  // in pages, the first of all
    rlim_t pages = 0;
    sizes >> pages;
    SetMostAddresses(pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes);
  }
  // It gets no number from `files` on for what it opens from now on.
  void LimitOpenFiles(rlim_t files) {
    rlimit limit{};
    if (::prlimit(pid_, RLIMIT_NOFILE, nullptr, &limit) != 0) std::abort();
    limit.rlim_cur = files;
    if (::prlimit(pid_, RLIMIT_NOFILE, &limit, nullptr) != 0) std::abort();
  }
  void LiftAddressLimit() { SetMostAddresses(RLIM_INFINITY); }

  bool WaitForOutput(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      if (!ReadOutput()) return false;
    }
    return true;
  }

  // Exit status, or -1 when it was killed or takes longer than five seconds.
  int Wait() {
    for (int i = 0; i < 500; ++i) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        while (ReadOutput()) {
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }

  // Wait has seen it end, by an exit or by a signal.
  bool has_ended() const { return pid_ < 0; }

  uint16_t Port() { return PortBehind("listening http=127.0.0.1:"); }
  uint16_t GrpcPort() { return PortBehind(" grpc=127.0.0.1:"); }

  const std::string& output() const { return output_; }

 private:
  void SetMostAddresses(rlim_t bytes) {
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    if (::prlimit(pid_, RLIMIT_AS, &limit, nullptr) != 0) std::abort();
  }

  uint16_t PortBehind(const std::string& mark) {
    if (!WaitForOutput(mark)) return 0;
    return static_cast<uint16_t>(std::atoi(output_.c_str() + output_.find(mark) + mark.size()));
  }

  bool ReadOutput() {
    pollfd file = {output_fd_, POLLIN, 0};
    if (::poll(&file, 1, 5000) <= 0) return false;
    char buffer[4096];
    const ssize_t bytes = ::read(output_fd_, buffer, sizeof(buffer));
    if (bytes <= 0) return false;
    output_.append(buffer, static_cast<size_t>(bytes));
    return true;
  }

  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string output_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_DAEMON_PROCESS_H_
