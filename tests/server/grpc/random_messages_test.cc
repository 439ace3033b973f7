// Random messages over real sockets, most of them wrong in some way: no crash, no status that
// blames the server, no call that is left running. 10^4 of them, or REFRAIN_RANDOM_STEPS. (What the
// readers make of bytes alone is tests/fuzz:grpc_request_fuzz's.)

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "server/grpc/server.h"
#include "server/log.h"
#include "tests/support/counting_gate.h"
#include "tests/support/fake_engine.h"
#include "tests/support/mutate.h"
#include "tests/support/random_steps.h"

namespace refrain::server::rpc {
namespace {

namespace protobuf = ::google::protobuf;
using namespace std::chrono_literals;
using ::grpc::StatusCode;
using ::refrain::testing::Mutate;
using ::refrain::testing::RandomSeed;
using ::refrain::testing::RandomSteps;

struct Call {
  std::string method;    // /service/method
  std::string bytes;     // of the message
  bool mutated = false;  // they may be none
  bool abandoned = false;
};

class Calls {
 public:
  explicit Calls(uint32_t seed) : random_(seed) {
    for (const char* name : {"refrain.v1.Inference", "refrain.v1.Admin"}) {
      const auto* service = protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
      for (int i = 0; i < service->method_count(); ++i) methods_.push_back(service->method(i));
    }
  }

  Call Next() {
    // Half are for text.
    const auto* method = Chance(50) ? methods_[Below(2)] : methods_[Below(methods_.size())];
    const std::unique_ptr<protobuf::Message> message(
        protobuf::MessageFactory::generated_factory()->GetPrototype(method->input_type())->New());
    Fill(message.get(), Chance(60) ? 10 : 50, 0);
    Call call;
    call.method = "/" + method->service()->full_name() + "/" + method->name();
    call.bytes = message->SerializeAsString();
    if (Chance(15)) {
      Mutate(&random_, &call.bytes);
      call.mutated = true;
    }
    if (Below(100) == 0) call.method += "x";
    call.abandoned = Chance(4);
    return call;
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }
  bool Chance(int percent) { return static_cast<int>(Below(100)) < percent; }

  std::string Text() {
    const char* const kTexts[] = {"",         "a",           "one two",
                                  "m",        "user",        "h\xc3\xa9",
                                  "24h",      "{}",          "[1]",
                                  "{\"a\":",  "<eos>",       "null",
                                  "\x01\x02", "[[late=3]]x", "[[delay_ms=1]]slow"};
    return Below(50) == 0 ? std::string(2000, 'x') : kTexts[Below(std::size(kTexts))];
  }
  int64_t Integer() {
    constexpr int64_t kIntegers[] = {0,  1,   2,       3,         5,         20,        97,
                                     -1, 300, 1 << 20, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    return kIntegers[Chance(70) ? Below(8) : Below(std::size(kIntegers))];
  }
  double Real() {
    constexpr double kReals[] = {0, 1, 0.5, 0.9, 2, -1, 1e-9, 1e30, -1e30, INFINITY, NAN};
    return kReals[Chance(70) ? Below(6) : Below(std::size(kReals))];
  }

  // Sets each of its fields with a chance of `percent`; a prompt it has most often.
  void Fill(protobuf::Message* message, int percent, int depth) {
    const protobuf::Descriptor* type = message->GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const protobuf::FieldDescriptor* field = type->field(i);
      const bool prompt = depth == 0 && (field->name() == "text" || field->name() == "messages");
      if (depth > 4 || !Chance(prompt ? 90 : percent)) continue;
      const size_t times = !field->is_repeated() ? 1 : Below(300) == 0 ? 3000 : 1 + Below(3);
      for (size_t n = 0; n < times; ++n) Set(message, field, percent, depth);
    }
  }

  void Set(protobuf::Message* message, const protobuf::FieldDescriptor* field, int percent,
           int depth) {
    const protobuf::Reflection& r = *message->GetReflection();
    const bool many = field->is_repeated();
    const auto set = [&](auto one, auto another, auto value) {
      many ? (r.*another)(message, field, value) : (r.*one)(message, field, value);
    };
    using R = protobuf::Reflection;
    switch (field->cpp_type()) {
      case protobuf::FieldDescriptor::CPPTYPE_INT32:
        return set(&R::SetInt32, &R::AddInt32, static_cast<int32_t>(Integer()));
      case protobuf::FieldDescriptor::CPPTYPE_UINT32:
        return set(&R::SetUInt32, &R::AddUInt32, static_cast<uint32_t>(Integer()));
      case protobuf::FieldDescriptor::CPPTYPE_INT64:
        return set(&R::SetInt64, &R::AddInt64, Integer());
      case protobuf::FieldDescriptor::CPPTYPE_UINT64:
        return set(&R::SetUInt64, &R::AddUInt64, static_cast<uint64_t>(Integer()));
      case protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
        return set(&R::SetDouble, &R::AddDouble, Real());
      case protobuf::FieldDescriptor::CPPTYPE_FLOAT:
        return set(&R::SetFloat, &R::AddFloat, static_cast<float>(Real()));
      case protobuf::FieldDescriptor::CPPTYPE_BOOL:
        return set(&R::SetBool, &R::AddBool, Chance(50));
      case protobuf::FieldDescriptor::CPPTYPE_ENUM:
        return set(&R::SetEnumValue, &R::AddEnumValue, static_cast<int>(Below(7)) - 1);
      case protobuf::FieldDescriptor::CPPTYPE_STRING:
        return many ? r.AddString(message, field, Text()) : r.SetString(message, field, Text());
      case protobuf::FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(many ? r.AddMessage(message, field) : r.MutableMessage(message, field), percent,
                    depth + 1);
    }
  }

  std::mt19937 random_;
  std::vector<const protobuf::MethodDescriptor*> methods_;
};

// What a client may be told, however strange its message: nothing in it is the server's fault.
const std::set<StatusCode> kCodes = {StatusCode::OK,
                                     StatusCode::INVALID_ARGUMENT,
                                     StatusCode::NOT_FOUND,
                                     StatusCode::DEADLINE_EXCEEDED,
                                     StatusCode::UNIMPLEMENTED,
                                     StatusCode::FAILED_PRECONDITION};

constexpr std::chrono::seconds kDeadline{60};

// Sends the call and reads its answers to the end.
::grpc::Status Run(::grpc::GenericStub* stub, const Call& call) {
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  ::grpc::CompletionQueue queue;
  const auto done = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto stream = stub->PrepareCall(&context, call.method, &queue);
  stream->StartCall(nullptr);
  bool going = done();
  if (going) {
    const ::grpc::Slice slice(call.bytes);
    stream->WriteLast(::grpc::ByteBuffer(&slice, 1), {}, nullptr);
    going = done();
  }
  if (call.abandoned) context.TryCancel();
  while (going) {
    ::grpc::ByteBuffer answer;
    stream->Read(&answer, nullptr);
    going = done();
  }
  ::grpc::Status status;
  stream->Finish(&status, nullptr);
  done();
  return status;
}

struct Tally {
  std::atomic<int> good{0}, refused{0}, unreadable{0}, abandoned{0};
};

void SendMany(const std::shared_ptr<::grpc::Channel>& channel, uint32_t seed, int count,
              Tally* tally) {
  Calls calls(seed);
  ::grpc::GenericStub stub(channel);
  for (int i = 0; i < count; ++i) {
    const Call call = calls.Next();
    const auto begin = std::chrono::steady_clock::now();
    const ::grpc::Status status = Run(&stub, call);
    ASSERT_LT(std::chrono::steady_clock::now() - begin, kDeadline / 2) << call.method << " sticks";
    const StatusCode code = status.error_code();
    if (call.abandoned) {
      ++tally->abandoned;
      continue;
    }
    ASSERT_TRUE(kCodes.contains(code)) << code << " " << status.error_message() << "\n to "
                                       << call.method << " of " << call.bytes.size() << " bytes";
    if (code == StatusCode::OK) {
      ++tally->good;
      continue;
    }
    // Of a method that there is not gRPC says no more than that.
    if (code != StatusCode::UNIMPLEMENTED) {
      EXPECT_NE(status.error_message(), "") << call.method;
    }
    const bool unreadable =
        status.error_message().find("is not a valid refrain") != std::string::npos;
    EXPECT_TRUE(call.mutated || !unreadable) << status.error_message();
    ++(unreadable ? tally->unreadable : tally->refused);
  }
}

TEST(RandomMessages, NoneCrashesSticksOrBlamesTheServer) {
  constexpr int kThreads = 4;
  Log log(LogFormat::kText, LogLevel::kError);
  testing::CountingGate gate;
  testing::FakeEngine engine({.max_context_tokens = 512});
  ServerOptions options;
  options.host = "127.0.0.1";
  const auto server = *Server::Start(options, &gate, &log);
  server->SetEngine(&engine);
  const auto channel = ::grpc::CreateChannel("127.0.0.1:" + std::to_string(server->port()),
                                             ::grpc::InsecureChannelCredentials());
  Tally tally;
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back(SendMany, channel, RandomSeed(2000 + i), RandomSteps() / kThreads, &tally);
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "what clients send is no news";
  // The mixture is what it is meant to be.
  EXPECT_GT(tally.good, RandomSteps() / 10);
  EXPECT_GT(tally.refused, RandomSteps() / 10);
  EXPECT_GT(tally.unreadable, RandomSteps() / 100);
  EXPECT_GT(tally.abandoned, RandomSteps() / 100);
  EXPECT_TRUE(engine.WaitForRunning(0));
  EXPECT_TRUE(server->WaitUntilAnswered(std::chrono::steady_clock::now() + 10s));
  const auto inference = v1::Inference::NewStub(channel);
  ::grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("still here");
  v1::TokenizeResponse response;
  EXPECT_TRUE(inference->Tokenize(&context, request, &response).ok());
  EXPECT_EQ(response.token_ids_size(), 10);
  server->Stop(0ms);
}

}  // namespace
}  // namespace refrain::server::rpc
