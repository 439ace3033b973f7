#ifndef REFRAIN_TESTS_SERVER_GRPC_RANDOM_CALLS_H_
#define REFRAIN_TESTS_SERVER_GRPC_RANDOM_CALLS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/mutate.h"

namespace refrain::testing {

struct RandomCall {
  std::string method;      // /service/method
  std::string bytes;       // of the message
  bool mutated = false;    // they may be none
  bool abandoned = false;  // at once, or when an answer has begun
};

// Makes calls from the messages' descriptors. One thread.
class RandomCalls {
 public:
  RandomCalls(uint32_t seed, int percent_abandoned)
      : random_(seed), percent_abandoned_(percent_abandoned) {
    for (const char* name : {"refrain.v1.Inference", "refrain.v1.Admin"}) {
      const auto* service =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
      for (int i = 0; i < service->method_count(); ++i) methods_.push_back(service->method(i));
    }
  }

  RandomCall Next() {
    // Half are for text.
    const auto* method = Chance(50) ? methods_[Below(2)] : methods_[Below(methods_.size())];
    const std::unique_ptr<google::protobuf::Message> message(
        google::protobuf::MessageFactory::generated_factory()
            ->GetPrototype(method->input_type())
            ->New());
    Fill(message.get(), Chance(60) ? 10 : 50, 0);
    RandomCall call;
    call.method = "/" + method->service()->full_name() + "/" + method->name();
    call.bytes = message->SerializeAsString();
    if (Chance(15)) {
      Mutate(&random_, &call.bytes);
      call.mutated = true;
    }
    if (Below(100) == 0) call.method += "x";
    call.abandoned = Chance(percent_abandoned_);
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
  void Fill(google::protobuf::Message* message, int percent, int depth) {
    const google::protobuf::Descriptor* type = message->GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const google::protobuf::FieldDescriptor* field = type->field(i);
      const bool prompt = depth == 0 && (field->name() == "text" || field->name() == "messages");
      if (depth > 4 || !Chance(prompt ? 90 : percent)) continue;
      const size_t times = !field->is_repeated() ? 1 : Below(300) == 0 ? 3000 : 1 + Below(3);
      for (size_t n = 0; n < times; ++n) Set(message, field, percent, depth);
    }
  }

  void Set(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field,
           int percent, int depth) {
    const google::protobuf::Reflection& r = *message->GetReflection();
    const bool many = field->is_repeated();
    const auto set = [&](auto one, auto another, auto value) {
      many ? (r.*another)(message, field, value) : (r.*one)(message, field, value);
    };
    using R = google::protobuf::Reflection;
    switch (field->cpp_type()) {
      case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
        return set(&R::SetInt32, &R::AddInt32, static_cast<int32_t>(Integer()));
      case google::protobuf::FieldDescriptor::CPPTYPE_UINT32:
        return set(&R::SetUInt32, &R::AddUInt32, static_cast<uint32_t>(Integer()));
      case google::protobuf::FieldDescriptor::CPPTYPE_INT64:
        return set(&R::SetInt64, &R::AddInt64, Integer());
      case google::protobuf::FieldDescriptor::CPPTYPE_UINT64:
        return set(&R::SetUInt64, &R::AddUInt64, static_cast<uint64_t>(Integer()));
      case google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
        return set(&R::SetDouble, &R::AddDouble, Real());
      case google::protobuf::FieldDescriptor::CPPTYPE_FLOAT:
        return set(&R::SetFloat, &R::AddFloat, static_cast<float>(Real()));
      case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
        return set(&R::SetBool, &R::AddBool, Chance(50));
      case google::protobuf::FieldDescriptor::CPPTYPE_ENUM:
        return set(&R::SetEnumValue, &R::AddEnumValue, static_cast<int>(Below(7)) - 1);
      case google::protobuf::FieldDescriptor::CPPTYPE_STRING:
        return many ? r.AddString(message, field, Text()) : r.SetString(message, field, Text());
      case google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(many ? r.AddMessage(message, field) : r.MutableMessage(message, field), percent,
                    depth + 1);
    }
  }

  std::mt19937 random_;
  const int percent_abandoned_;
  std::vector<const google::protobuf::MethodDescriptor*> methods_;
};

// What a client may be told, however strange its message: nothing in it is the server's fault.
inline bool MayBeTold(::grpc::StatusCode code) {
  constexpr ::grpc::StatusCode kCodes[] = {::grpc::OK,
                                           ::grpc::INVALID_ARGUMENT,
                                           ::grpc::NOT_FOUND,
                                           ::grpc::DEADLINE_EXCEEDED,
                                           ::grpc::UNIMPLEMENTED,
                                           ::grpc::FAILED_PRECONDITION};
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

inline constexpr std::chrono::seconds kCallDeadline{60};

// Sends the call and reads its answers to the end.
inline ::grpc::Status RunCall(::grpc::GenericStub* stub, const RandomCall& call) {
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallDeadline);
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
  const bool inside = call.abandoned && call.bytes.size() % 2 == 0;
  if (call.abandoned && !inside) context.TryCancel();
  while (going) {
    ::grpc::ByteBuffer answer;
    stream->Read(&answer, nullptr);
    going = done();
    if (inside) context.TryCancel();
  }
  ::grpc::Status status;
  stream->Finish(&status, nullptr);
  done();
  return status;
}

struct CallTally {
  std::atomic<int> good{0}, refused{0}, unreadable{0}, abandoned{0};
};

inline void SendRandomCalls(const std::shared_ptr<::grpc::Channel>& channel, uint32_t seed,
                            int count, CallTally* tally, int percent_abandoned = 4) {
  RandomCalls calls(seed, percent_abandoned);
  ::grpc::GenericStub stub(channel);
  for (int i = 0; i < count; ++i) {
    const RandomCall call = calls.Next();
    const auto begin = std::chrono::steady_clock::now();
    const ::grpc::Status status = RunCall(&stub, call);
    ASSERT_LT(std::chrono::steady_clock::now() - begin, kCallDeadline / 2)
        << call.method << " sticks";
    const ::grpc::StatusCode code = status.error_code();
    if (call.abandoned) {
      ++tally->abandoned;
      continue;
    }
    ASSERT_TRUE(MayBeTold(code)) << code << " " << status.error_message() << "\n to " << call.method
                                 << " of " << call.bytes.size() << " bytes";
    if (code == ::grpc::OK) {
      ++tally->good;
      continue;
    }
    // Of a method that there is not gRPC says no more than that.
    if (code != ::grpc::UNIMPLEMENTED) {
      EXPECT_NE(status.error_message(), "") << call.method;
    }
    const bool unreadable =
        status.error_message().find("is not a valid refrain") != std::string::npos;
    EXPECT_TRUE(call.mutated || !unreadable) << status.error_message();
    ++(unreadable ? tally->unreadable : tally->refused);
  }
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SERVER_GRPC_RANDOM_CALLS_H_
