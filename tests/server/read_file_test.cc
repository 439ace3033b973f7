#include "server/read_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "absl/status/status.h"

namespace refrain::server {
namespace {

std::string FileOf(size_t bytes) {
  const std::string path = ::testing::TempDir() + "/read_file_test";
  std::ofstream(path, std::ios::binary) << std::string(bytes, 'x');
  return path;
}

TEST(ReadFile, GivesAllBytesUpToTheLimit) {
  for (const size_t bytes : {0, 1, 65535, 65536, 65537, 200000}) {
    const auto text = ReadFile("", FileOf(bytes), 200000);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, std::string(bytes, 'x'));
  }
  const absl::Status status = ReadFile("the file", FileOf(200001), 200000).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(std::string(status.message()).find("more than 200000 bytes"), std::string::npos);
}

TEST(ReadFile, ReadsAPipeUntilItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([fd = ends[1]] {
    const std::string text(100000, 'y');
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fd);
  });
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  const auto text = ReadFile("", path, 1 << 20);
  writer.join();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size(), 100000u);
  // Its bytes are gone; that is no file without any.
  EXPECT_EQ(ReadFile("the file of keys", path, 10).status(),
            absl::UnavailableError("cannot read the file of keys " + path +
                                   ": a pipe with nothing in it"));
  ::close(ends[0]);
}

// The thread that reads keys again is the one that takes signals.
TEST(ReadFile, WaitsNotForEverForAPipe) {
  const std::string path = ::testing::TempDir() + "/read_file_test.fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const absl::Status status =
      absl::UnavailableError("cannot read " + path + ": a pipe that nobody writes into");
  EXPECT_EQ(ReadFile("", path, 10, std::chrono::milliseconds(50)).status(), status);
  const int writer = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  EXPECT_EQ(::write(writer, "half", 4), 4);
  EXPECT_EQ(ReadFile("", path, 10, std::chrono::milliseconds(50)).status(), status);
  ::close(writer);
  ::unlink(path.c_str());
}

TEST(ReadFile, SaysWhatCannotBeRead) {
  const absl::Status missing = ReadFile("the file of keys", "/no/such", 10).status();
  EXPECT_EQ(missing, absl::NotFoundError(
                         "cannot open the file of keys /no/such: No such file or directory"));
  EXPECT_EQ(ReadFile("", "/", 10).status(),
            absl::UnavailableError("cannot read /: Is a directory"));
  // A file whose reading fails.
  EXPECT_EQ(ReadFile("", "/proc/self/mem", 10).status(),
            absl::UnavailableError("cannot read /proc/self/mem: Input/output error"));
}

}  // namespace
}  // namespace refrain::server
