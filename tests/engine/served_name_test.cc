#include "engine/served_name.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace refrain::engine {
namespace {

TEST(ServedName, SaysWhatIsWrongWithOneAndWhere) {
  for (const char* good : {"", "a", "Modell-\xc3\xa4 7B \"x\"", "\xe6\xa8\xa1\xe5\x9e\x8b"}) {
    EXPECT_TRUE(CheckServedName(good).ok()) << good;
  }
  const std::pair<std::string, const char*> kBad[] = {
      {"\xff\"", "\"\\xff\\\"\" has what is not UTF-8 at byte 0;"},
      {"ab\xc3", "\"ab\\xc3\" has what is not UTF-8 at byte 2;"},
      {"\xc3\xa4\xed\xa0\x80", "has what is not UTF-8 at byte 2;"},
      {"a\nb", "\"a\\nb\" has a control character at byte 1;"},
      {std::string("\0", 1), "\"\\x00\" has a control character at byte 0;"},
      {"a\x7f", "has a control character at byte 1;"},
      {"a\xc2\x85", "has a control character at byte 1;"},
      {std::string(200, 'a') + "\n", "...\" has a control character at byte 200;"},
  };
  for (const auto& [name, mention] : kBad) {
    const std::string message(CheckServedName(name).message());
    EXPECT_NE(message.find(mention), std::string::npos) << message;
    EXPECT_NE(message.find("expected UTF-8 text without control"), std::string::npos) << message;
  }
}

TEST(ServedName, IsThatOfTheFolderOrOfTheFileWithoutItsExtension) {
  testing::TemporaryDirectory directory;
  const std::string folder = directory.path() + "/a.b";
  std::filesystem::create_directory(folder);
  EXPECT_EQ(ServedNameOfPath(folder), "a.b");
  EXPECT_EQ(ServedNameOfPath(folder + "/"), "a.b");
  EXPECT_EQ(ServedNameOfPath("/does/not/exist/model.Q4_1.gguf"), "model.Q4_1");
  EXPECT_EQ(ServedNameOfPath("/a/qwen2.5-7b-q4_k_m-00001-of-00002.gguf"), "qwen2.5-7b-q4_k_m");
  EXPECT_EQ(ServedNameOfPath("-00001-of-00002.gguf"), "-00001-of-00002");
  EXPECT_EQ(ServedNameOfPath("a-00000-of-00002.gguf"), "a-00000-of-00002");
  EXPECT_EQ(ServedNameOfPath("a-0001-of-00002.gguf"), "a-0001-of-00002");
}

// `--model .` in a model's folder.
TEST(ServedName, IsThatOfTheFolderWhereThePathIsDots) {
  testing::TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path() + "/model/shards");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path() + "/model");
  EXPECT_EQ(ServedNameOfPath("."), "model");
  EXPECT_EQ(ServedNameOfPath("./"), "model");
  EXPECT_EQ(ServedNameOfPath("shards/.."), "model");
  std::filesystem::current_path("shards");
  EXPECT_EQ(ServedNameOfPath(".."), "model");
  std::filesystem::current_path(before);
  EXPECT_EQ(ServedNameOfPath(directory.path() + "/model/shards/../"), "model");
}

// Hugging Face's cache: a folder is called by its revision, a file is a link to its hash.
TEST(ServedName, IsThatOfTheRepositoryInHuggingFacesCache) {
  testing::TemporaryDirectory directory;
  const std::string hub = directory.path() + "/models--Qwen--Qwen3-8B";
  const std::string snapshot = hub + "/snapshots/9c925d64d72725edaf899c6cb9c377fd0709d9c5";
  std::filesystem::create_directories(snapshot + "/part");
  std::filesystem::create_directory(hub + "/blobs");
  std::ofstream(hub + "/blobs/f00d").flush();
  std::filesystem::create_symlink("../../blobs/f00d", snapshot + "/Qwen3-8B-Q4_K_M.gguf");
  EXPECT_EQ(ServedNameOfPath(snapshot), "Qwen3-8B");
  EXPECT_EQ(ServedNameOfPath(snapshot + "/"), "Qwen3-8B");
  EXPECT_EQ(ServedNameOfPath(snapshot + "/Qwen3-8B-Q4_K_M.gguf"), "Qwen3-8B-Q4_K_M");
  EXPECT_EQ(ServedNameOfPath(snapshot + "/part"), "part");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(snapshot);
  EXPECT_EQ(ServedNameOfPath("."), "Qwen3-8B");
  std::filesystem::current_path(before);
  for (const std::string other : {"/models--gpt2/snapshots/rev", "/datasets--a--b/snapshots/rev",
                                  "/models--a--b/refs/rev", "/models--a--/snapshots/rev"}) {
    std::filesystem::create_directories(directory.path() + other);
    EXPECT_EQ(ServedNameOfPath(directory.path() + other),
              other.starts_with("/models--gpt2/") ? "gpt2" : "rev")
        << other;
  }
}

TEST(ServedName, OfAPathIsMendedWhereNoClientCouldReadIt) {
  EXPECT_EQ(ServedNameOfPath("hx\xff.gguf"), "hx\xef\xbf\xbd");
  EXPECT_EQ(ServedNameOfPath("a\nb\x7f\xc2\x85\xc3\xa4"),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\xef\xbf\xbd\xc3\xa4");
}

}  // namespace
}  // namespace refrain::engine
