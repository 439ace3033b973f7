// What grpc.reflection.v1alpha and v1 tell, and what it costs to ask.

#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/reflection.grpc.pb.h"
#include "proto/reflection_v1.grpc.pb.h"
#include "server/access/gate.h"
#include "server/grpc/server.h"
#include "server/log.h"

namespace refrain::server::rpc {
namespace {

namespace reflection = ::grpc::reflection::v1alpha;
using ::grpc::StatusCode;
using Question = reflection::ServerReflectionRequest;
using Told = reflection::ServerReflectionResponse;

class KeyedGate final : public access::Gate {
 public:
  absl::StatusOr<access::Principal> Authenticate(access::Area area,
                                                 std::string_view authorization) const override {
    EXPECT_EQ(area, access::Area::kMonitoring);
    if (authorization == "Bearer key") return access::Principal{};
    return absl::UnauthenticatedError("the API key is not valid");
  }
  absl::StatusOr<access::Ticket> Admit(const access::Principal&) override {
    return access::Ticket();
  }
};

class ReflectionTest : public ::testing::Test {
 public:
  ~ReflectionTest() override { server_->Stop(std::chrono::milliseconds(0)); }

 protected:
  struct Exchange {
    std::vector<Told> answers;
    ::grpc::Status status;
  };

  // One stream with these questions, each asked when the one before has been answered.
  Exchange Ask(const std::vector<Question>& questions, const char* key = "key") {
    ::grpc::ClientContext context;
    context.AddMetadata("authorization", std::string("Bearer ") + key);
    const auto stream = stub_->ServerReflectionInfo(&context);
    Exchange exchange;
    for (const Question& question : questions) {
      Told told;
      if (!stream->Write(question) || !stream->Read(&told)) break;
      exchange.answers.push_back(std::move(told));
    }
    stream->WritesDone();
    exchange.status = stream->Finish();
    return exchange;
  }

  // The answer to one question.
  Told AnswerTo(const Question& question) {
    Exchange exchange = Ask({question});
    EXPECT_TRUE(exchange.status.ok()) << exchange.status.error_message();
    EXPECT_EQ(exchange.answers.size(), 1u);
    return exchange.answers.empty() ? Told() : exchange.answers[0];
  }

  static std::set<std::string> FilesOf(const Told& told) {
    std::set<std::string> names;
    for (const std::string& bytes : told.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(bytes));
      EXPECT_TRUE(names.insert(file.name()).second) << file.name();
    }
    return names;
  }

  KeyedGate gate_;
  Log log_{LogFormat::kText, LogLevel::kError};
  std::unique_ptr<Server> server_ = *Server::Start({.host = "127.0.0.1"}, &gate_, &log_);
  std::shared_ptr<::grpc::Channel> channel_ = ::grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server_->port()), ::grpc::InsecureChannelCredentials());
  std::unique_ptr<reflection::ServerReflection::Stub> stub_ =
      reflection::ServerReflection::NewStub(channel_);
};

TEST_F(ReflectionTest, ListsTheServices) {
  Question question;
  question.set_host("me");
  question.set_list_services("");
  const Told told = AnswerTo(question);
  std::set<std::string> names;
  for (const auto& service : told.list_services_response().service()) names.insert(service.name());
  EXPECT_EQ(names,
            (std::set<std::string>{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                   "grpc.reflection.v1alpha.ServerReflection", "refrain.v1.Admin",
                                   "refrain.v1.Inference"}));
  EXPECT_EQ(told.valid_host(), "me");
  EXPECT_EQ(told.original_request().SerializeAsString(), question.SerializeAsString());
}

// Else clients that go by what is listed fail at it (`grpcurl describe`).
TEST_F(ReflectionTest, KnowsEachServiceThatItLists) {
  Question question;
  question.set_list_services("");
  const Told listed = AnswerTo(question);
  for (const auto& service : listed.list_services_response().service()) {
    question.set_file_containing_symbol(service.name());
    EXPECT_FALSE(FilesOf(AnswerTo(question)).empty()) << service.name();
  }
}

TEST_F(ReflectionTest, TellsAFileWithAllThatItImports) {
  Question by_symbol, by_name;
  by_symbol.set_file_containing_symbol("refrain.v1.Admin.Warm");
  by_name.set_file_by_filename("proto/admin.proto");
  for (const Question& question : {by_symbol, by_name}) {
    EXPECT_EQ(FilesOf(AnswerTo(question)),
              (std::set<std::string>{"proto/admin.proto", "proto/inference.proto"}));
  }
}

// Under both names, to clients of either.
TEST_F(ReflectionTest, IsTheSameUnderItsNewerName) {
  Question question;
  question.set_file_containing_symbol("grpc.reflection.v1.ServerReflection");
  const Told expected = AnswerTo(question);
  EXPECT_EQ(FilesOf(expected),
            (std::set<std::string>{"proto/reflection_v1.proto", "proto/reflection.proto"}));
  const auto newer = ::grpc::reflection::v1::ServerReflection::NewStub(channel_);
  for (const char* key : {"Bearer key", "Bearer another"}) {
    ::grpc::ClientContext context;
    context.AddMetadata("authorization", key);
    const auto stream = newer->ServerReflectionInfo(&context);
    stream->Write(question);
    stream->WritesDone();
    Told told;
    const bool has_key = key == std::string("Bearer key");
    EXPECT_EQ(stream->Read(&told), has_key);
    if (has_key) {
      EXPECT_EQ(told.SerializeAsString(), expected.SerializeAsString());
    }
    EXPECT_EQ(stream->Finish().error_code(),
              has_key ? StatusCode::OK : StatusCode::UNAUTHENTICATED);
  }
}

TEST_F(ReflectionTest, SaysWhatItDoesNotKnow) {
  std::vector<Question> questions(6);
  questions[0].set_file_by_filename("other.proto");
  questions[1].set_file_containing_symbol("refrain.v1.Other");
  questions[2].mutable_file_containing_extension()->set_containing_type("refrain.v1.Sampling");
  questions[3].set_all_extension_numbers_of_type("refrain.v1.Other");
  questions[4].set_host("asks nothing");
  questions[5].set_all_extension_numbers_of_type("refrain.v1.Sampling");
  const Exchange exchange = Ask(questions);
  EXPECT_TRUE(exchange.status.ok());
  ASSERT_EQ(exchange.answers.size(), questions.size());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(exchange.answers[i].error_response().error_code(), StatusCode::NOT_FOUND) << i;
  }
  EXPECT_EQ(exchange.answers[4].error_response().error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(exchange.answers[5].all_extension_numbers_response().base_type_name(),
            "refrain.v1.Sampling");
}

TEST_F(ReflectionTest, AsksForAKey) {
  Question question;
  question.set_list_services("");
  const Exchange exchange = Ask({question}, "another");
  EXPECT_EQ(exchange.status.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(exchange.answers.empty());
}

TEST_F(ReflectionTest, ReadsSmallQuestionsOnly) {
  Question question;
  question.set_file_containing_symbol(std::string(1000, 'a'));
  EXPECT_EQ(AnswerTo(question).error_response().error_code(), StatusCode::NOT_FOUND);
  question.set_file_containing_symbol(std::string(1100, 'a'));
  EXPECT_EQ(Ask({question}).status.error_code(), StatusCode::INVALID_ARGUMENT);
}

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Protobuf looks for "a.a.a" as "a.a" and "a", too, and has one lock for all who look.
TEST_F(ReflectionTest, NoQuestionTakesLong) {
  constexpr int kTimes = 10;
  for (const size_t bytes : {1000, 16'000}) {
    Question question;
    question.set_file_containing_symbol(std::string(bytes, '.'));
    const double before_s = CpuSeconds();
    for (int i = 0; i < kTimes; ++i) Ask({question});
    EXPECT_LT(CpuSeconds() - before_s, kTimes * 0.05) << bytes;
  }
}

// Else it would hold an answer for as long as it likes.
TEST_F(ReflectionTest, EndsAStreamWhoseClientDoesNotRead) {
  using std::chrono_literals::operator""ms;
  const auto server =
      Server::Start({.host = "127.0.0.1", .write_timeout = 300ms}, &gate_, &log_).value();
  ::grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = reflection::ServerReflection::NewStub(
      ::grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server->port()),
                                  ::grpc::InsecureChannelCredentials(), arguments));
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(15));
  context.AddMetadata("authorization", "Bearer key");
  const auto stream = stub->ServerReflectionInfo(&context);
  Question question;
  question.set_file_by_filename("proto/admin.proto");
  // Until flow control holds up the answers, then the questions, and then there is no stream.
  while (stream->Write(question)) {
  }
  Told told;
  while (stream->Read(&told)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
  server->Stop(0ms);
}

// The most memory that this process has had.
long PeakKiB() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Read, it would take more than 500 MB: elements of two bytes each.
TEST_F(ReflectionTest, TakesNoMemoryForWhatStrangersSend) {
  const auto send = [&](const char* key, size_t bytes) {
    std::string question;
    while (question.size() < bytes) question.append("\x7a\x00", 2);
    const ::grpc::Slice slice(question);
    ::grpc::GenericStub stub(channel_);
    ::grpc::CompletionQueue queue;
    ::grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    context.AddMetadata("authorization", key);
    const auto stream = stub.PrepareCall(
        &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
    };
    stream->StartCall(nullptr);
    wait();
    stream->WriteLast(::grpc::ByteBuffer(&slice, 1), {}, nullptr);
    wait();
    ::grpc::Status status;
    stream->Finish(&status, nullptr);
    wait();
    return status.error_code();
  };
  EXPECT_EQ(send("Bearer another", 100), StatusCode::UNAUTHENTICATED);
  const long before = PeakKiB();
  EXPECT_EQ(send("Bearer another", 12 << 20), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(send("Bearer key", 12 << 20), StatusCode::INVALID_ARGUMENT);
  EXPECT_LT(PeakKiB(), before + (250 << 10));
}

}  // namespace
}  // namespace refrain::server::rpc
