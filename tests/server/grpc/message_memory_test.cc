// What a message will take in memory, told from its bytes.

#include "server/grpc/message_memory.h"

#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "proto/inference.pb.h"
#include "tests/support/allocated_bytes.h"

namespace refrain::server::rpc {
namespace {

using ::refrain::testing::AllocatedBytes;

size_t Told(const std::string& bytes, size_t most = SIZE_MAX) {
  const ::grpc::Slice slice(bytes);
  const ::grpc::ByteBuffer buffer(&slice, 1);
  return MemoryOnceRead(buffer, *v1::ChatRequest::descriptor(), most);
}

constexpr int kElements = 10'000;

struct Case {
  const char* name;
  std::function<void(v1::ChatRequest*)> add;
};

google::protobuf::UnknownFieldSet* Unknown(v1::ChatRequest* request) {
  return request->GetReflection()->MutableUnknownFields(request);
}

const Case kSmallElements[] = {
    {"messages", [](auto* r) { r->mutable_chat()->add_messages(); }},
    {"messages of a role", [](auto* r) { r->mutable_chat()->add_messages()->set_role("user"); }},
    {"words", [](auto* r) { r->mutable_params()->mutable_sampling()->add_bad_words(""); }},
    {"strings", [](auto* r) { r->mutable_params()->mutable_stop()->add_stop("a"); }},
    {"biases",
     [](auto* r) {
       auto& biases = *r->mutable_params()->mutable_sampling()->mutable_logit_bias();
       biases[static_cast<int32_t>(biases.size())] = 1;
     }},
    {"ids", [](auto* r) { r->mutable_params()->mutable_sampling()->add_allowed_token_ids(7); }},
    {"unknown numbers", [](auto* r) { Unknown(r)->AddVarint(15, 1); }},
    {"unknown texts", [](auto* r) { Unknown(r)->AddLengthDelimited(15, ""); }},
    {"unknown groups", [](auto* r) { Unknown(r)->AddGroup(15); }},
};

TEST(MemoryOnceRead, BoundsWhatSmallElementsTake) {
  for (const Case& one : kSmallElements) {
    v1::ChatRequest written;
    for (int i = 0; i < kElements; ++i) one.add(&written);
    const std::string bytes = written.SerializeAsString();
    const size_t before = AllocatedBytes();
    v1::ChatRequest read;
    ASSERT_TRUE(read.ParseFromString(bytes));
    const auto got = static_cast<double>(AllocatedBytes() - before);
    const auto told = static_cast<double>(Told(bytes));
    EXPECT_GT(told, 0.5 * got) << one.name;  // arrays may be half empty
    if (got > 0) {
      EXPECT_LT(told, 4 * got) << one.name;
    }
    EXPECT_GT(told, 0.5 * static_cast<double>(read.SpaceUsedLong())) << one.name;
  }
}

// With a value of another form than its own, Protobuf keeps a field as one that it does not know.
TEST(MemoryOnceRead, BoundsFieldsWithValuesOfAnotherForm) {
  const auto delimited = [](uint8_t tag, const std::string& value) {
    return std::string(1, static_cast<char>(tag)) + static_cast<char>(value.size()) + value;
  };
  const struct {
    const char* name;
    std::string element;  // of GenerationParams
  } cases[] = {
      {"a number that is an empty text", delimited(5 << 3 | 2, "")},
      {"a number that is a text", delimited(5 << 3 | 2, std::string(40, '\xff'))},
      {"a message that is a number", std::string("\x08\x01", 2)},
      {"a text that is a number", std::string("\x48\x01", 2)},
      {"a number that is a group", std::string("\x2b\x2c", 2)},
      {"a message that is a group", std::string("\x0b\x0c", 2)},
      {"a message that is eight bytes", "\x09" + std::string(8, 'a')},
      {"a number that is four bytes", "\x2d" + std::string(4, 'a')},
  };
  for (const auto& one : cases) {
    std::string params;
    for (int i = 0; i < kElements; ++i) params += one.element;
    v1::ChatRequest read;
    const size_t before = AllocatedBytes();
    ASSERT_TRUE(read.mutable_params()->ParseFromString(params)) << one.name;
    const auto got = static_cast<double>(AllocatedBytes() - before);
    const auto told = static_cast<double>(Told(read.SerializeAsString()));
    EXPECT_GT(told, 0.5 * got) << one.name;  // arrays may be half empty
    EXPECT_GT(told, 0.5 * static_cast<double>(read.SpaceUsedLong())) << one.name;
    if (got > 0) {
      EXPECT_LT(told, 4 * got) << one.name;
    }
  }
}

// Else they would leave no room for others.
TEST(MemoryOnceRead, IsAboutTheirBytesForTexts) {
  v1::ChatRequest request;
  for (int i = 0; i < 100; ++i) {
    auto* const message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content(std::string(10'000, 'a'));
  }
  const std::string bytes = request.SerializeAsString();
  EXPECT_GT(Told(bytes), bytes.size());
  EXPECT_LT(Told(bytes), bytes.size() * 21 / 20);
}

TEST(MemoryOnceRead, OfIdsIsFourBytesEach) {
  v1::ChatRequest request;
  auto* const ids = request.mutable_params()->mutable_sampling()->mutable_allowed_token_ids();
  for (int i = 0; i < 100'000; ++i) ids->Add(i);
  EXPECT_GT(Told(request.SerializeAsString()), 400'000u);
  EXPECT_LT(Told(request.SerializeAsString()), 401'000u);
}

TEST(MemoryOnceRead, EndsBehindTheMost) {
  v1::ChatRequest request;
  for (int i = 0; i < kElements; ++i) request.mutable_chat()->add_messages();
  const std::string bytes = request.SerializeAsString();
  EXPECT_GT(Told(bytes, 10'000), 10'000u);
  EXPECT_LT(Told(bytes, 10'000), 20'000u);
}

// The reader finds the fault.
TEST(MemoryOnceRead, OfMalformedBytesIsThatOfWhatIsInFront) {
  v1::ChatRequest request;
  for (int i = 0; i < 100; ++i) request.mutable_chat()->add_messages();
  const std::string bytes = request.SerializeAsString();
  const size_t whole = Told(bytes);
  for (const std::string& fault :
       {std::string("\x08"), std::string("\x0a\x7f"), std::string("\x0a\xff\xff\xff\xff\x0f"),
        std::string("\x0f"), std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        std::string("\x00", 1)}) {
    EXPECT_GE(Told(bytes + fault), whole);
    EXPECT_LT(Told(bytes + fault), whole + 1000);
  }
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_LE(Told(bytes.substr(0, size)), whole);
}

}  // namespace
}  // namespace refrain::server::rpc
