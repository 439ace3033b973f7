#include "server/access/make_key_command.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "server/access/api_keys.h"
#include "server/concat.h"

namespace refrain::server::access {
namespace {

constexpr std::string_view kUsage =
    "usage: refraind make-key --file FILE --name NAME [--weight W] [--requests N] "
    "[--tokens-per-s N]";

struct Call {
  std::string file;
  std::string name;
  KeyTerms terms;
};

template <typename Number>
absl::Status ReadNumber(std::string_view flag, std::string_view text, Number* number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), *number);
  if (read.ec == std::errc() && read.ptr == text.data() + text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(flag, " \"", text, "\" is not a number"));
}

absl::StatusOr<Call> ParseCall(std::span<const char* const> arguments) {
  Call call;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view flag = arguments[i];
    if (i + 1 == arguments.size()) return absl::InvalidArgumentError(kUsage.data());
    const std::string_view value = arguments[i + 1];
    absl::Status status;
    if (flag == "--file") {
      call.file = std::string(value);
    } else if (flag == "--name") {
      call.name = std::string(value);
    } else if (flag == "--weight") {
      status = ReadNumber(flag, value, &call.terms.weight);
    } else if (flag == "--requests") {
      status = ReadNumber(flag, value, &call.terms.requests.emplace());
    } else if (flag == "--tokens-per-s") {
      status = ReadNumber(flag, value, &call.terms.tokens_per_s.emplace());
    } else {
      status = absl::InvalidArgumentError(Concat("unknown argument \"", flag, "\"; ", kUsage));
    }
    if (!status.ok()) return status;
  }
  if (call.file.empty() || call.name.empty()) return absl::InvalidArgumentError(kUsage.data());
  return call;
}

// What is to be added to the file for the key. INVALID_ARGUMENT where the daemon would not read the
// file with it.
absl::StatusOr<std::string> TextToAdd(const std::string& path, const NewKey& key) {
  const absl::StatusOr<std::string> text = ReadKeyFile(path);
  if (!text.ok()) return text.status();
  const bool line_is_open = !text->empty() && text->back() != '\n';
  std::string added = Concat(line_is_open ? "\n" : "", key.line);
  const absl::StatusOr<KeyRing> ring = KeyRing::Parse(*text + added, path);
  if (!ring.ok()) return ring.status();
  return added;
}

bool WriteWhole(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(file) == 0;
}

absl::Status Failed(std::string_view what, const std::string& path) {
  return absl::UnavailableError(
      Concat("cannot ", what, " ", path, ": ", std::generic_category().message(errno)));
}

// A file of keys that was opened to be added to.
struct KeyFile {
  int file = -1;
  bool is_new = false;
  bool is_locked = false;
};

absl::StatusOr<KeyFile> Open(const std::string& path) {
  // A pipe without a reader would be waited for in here.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  KeyFile opened{.file = ::open(path.c_str(), kFlags | O_EXCL, 0600), .is_new = true};
  if (opened.file < 0 && errno == EEXIST) {
    opened = {.file = ::open(path.c_str(), kFlags, 0600)};
  }
  if (opened.file < 0) return Failed("open", path);
  return opened;
}

// Before the file is read: another call may be about to add a line that this one does not go with,
// and a line that is added while this one fails would be cut off below.
absl::Status Lock(const std::string& path, KeyFile* opened) {
  while (::flock(opened->file, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    // Some file systems have no locks: whoever keeps keys there makes one at a time.
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
    return Failed("lock", path);
  }
  opened->is_locked = true;
  return absl::OkStatus();
}

absl::Status Add(const std::string& path, const NewKey& key, int file) {
  const absl::StatusOr<std::string> text = TextToAdd(path, key);
  if (!text.ok()) return text.status();
  struct stat before {};
  const bool sized = ::fstat(file, &before) == 0;
  const absl::Status written = WriteWhole(file, *text) ? absl::OkStatus() : Failed("write", path);
  // Of a full disk: with half a line the daemon would read no key.
  if (!written.ok() && sized && ::ftruncate(file, before.st_size) != 0) {
    return absl::DataLossError(Concat(written.message(), "; its last line may be incomplete"));
  }
  return written;
}

bool IsNamed(const std::string& path, const struct stat& opened) {
  struct stat named {};
  return ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

void RemoveIfEmpty(const std::string& path, int file) {
  struct stat opened {};
  if (::fstat(file, &opened) != 0 || opened.st_size != 0) return;
  if (IsNamed(path, opened)) ::unlink(path.c_str());
}

absl::Status AddToFile(const std::string& path, const NewKey& key) {
  for (;;) {
    absl::StatusOr<KeyFile> opened = Open(path);
    if (!opened.ok()) return opened.status();
    const absl::Cleanup close = [file = opened->file] { ::close(file); };  // which unlocks it
    if (absl::Status status = Lock(path, &*opened); !status.ok()) return status;
    struct stat info {};
    const bool is_known = ::fstat(opened->file, &info) == 0;
    // The call that made it has taken it away. Of a path such as /dev/fd/3 it may be the one all
    // the same.
    if (is_known && info.st_nlink == 0 && !IsNamed(path, info)) continue;
    const absl::Status added = Add(path, key, opened->file);
    // As it was, not there. Whoever waits for the lock sees that.
    if (!added.ok() && opened->is_new && opened->is_locked) RemoveIfEmpty(path, opened->file);
    return added;
  }
}

}  // namespace

absl::StatusOr<std::string> RunMakeKey(std::span<const char* const> arguments) {
  for (const std::string_view argument : arguments) {
    if (argument == "--help" || argument == "-h") return std::string(kUsage);
  }
  const absl::StatusOr<Call> call = ParseCall(arguments);
  if (!call.ok()) return call.status();
  const absl::StatusOr<NewKey> made = MakeKey(call->name, call->terms);
  if (!made.ok()) return made.status();
  if (absl::Status status = AddToFile(call->file, *made); !status.ok()) return status;
  return made->key;
}

}  // namespace refrain::server::access
