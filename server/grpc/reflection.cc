#include "server/grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "proto/reflection.grpc.pb.h"
#include "proto/reflection_v1.grpc.pb.h"
#include "server/concat.h"
#include "server/grpc/guarded.h"
#include "server/grpc/message.h"
#include "server/grpc/metadata.h"
#include "server/grpc/stalling_call.h"
#include "server/grpc/status_mapping.h"
#include "server/request_id.h"

namespace refrain::server::rpc {
namespace {

namespace reflection = ::grpc::reflection::v1alpha;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using ::grpc::ByteBuffer;
using ::grpc::StatusCode;

// Protobuf looks for a name that it does not know by each part up to a dot, too: its time grows
// with the square of the name's length, and it looks for one name at a time.
constexpr size_t kMostQuestionBytes = 1 << 10;
constexpr const char* kServices[] = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                     "grpc.reflection.v1alpha.ServerReflection", "refrain.v1.Admin",
                                     "refrain.v1.Inference"};

void Refuse(StatusCode code, const std::string& message,
            reflection::ServerReflectionResponse* answer) {
  answer->mutable_error_response()->set_error_code(code);
  answer->mutable_error_response()->set_error_message(message);
}

// The file and all that it imports, each once.
void AddFiles(const FileDescriptor* file, std::set<std::string>* added,
              reflection::FileDescriptorResponse* answer) {
  if (!added->insert(file->name()).second) return;
  google::protobuf::FileDescriptorProto described;
  file->CopyTo(&described);
  answer->add_file_descriptor_proto(described.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) {
    AddFiles(file->dependency(i), added, answer);
  }
}

void TellFile(const FileDescriptor* file_or_null, const char* what,
              reflection::ServerReflectionResponse* answer) {
  if (file_or_null == nullptr) return Refuse(StatusCode::NOT_FOUND, what, answer);
  std::set<std::string> added;
  AddFiles(file_or_null, &added, answer->mutable_file_descriptor_response());
}

// No message of ours has any.
void TellExtensions(const std::string& type, reflection::ServerReflectionResponse* answer) {
  if (DescriptorPool::generated_pool()->FindMessageTypeByName(type) == nullptr) {
    return Refuse(StatusCode::NOT_FOUND, "Type not found.", answer);
  }
  answer->mutable_all_extension_numbers_response()->set_base_type_name(type);
}

void Answer(const reflection::ServerReflectionRequest& question,
            reflection::ServerReflectionResponse* answer) {
  using Question = reflection::ServerReflectionRequest;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  answer->set_valid_host(question.host());
  *answer->mutable_original_request() = question;
  switch (question.message_request_case()) {
    case Question::kFileByFilename:
      return TellFile(pool.FindFileByName(question.file_by_filename()), "File not found.", answer);
    case Question::kFileContainingSymbol:
      return TellFile(pool.FindFileContainingSymbol(question.file_containing_symbol()),
                      "Symbol not found.", answer);
    case Question::kFileContainingExtension:
      return Refuse(StatusCode::NOT_FOUND, "Extension not found.", answer);
    case Question::kAllExtensionNumbersOfType:
      return TellExtensions(question.all_extension_numbers_of_type(), answer);
    case Question::kListServices:
      for (const char* name : kServices) {
        answer->mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case Question::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  Refuse(StatusCode::UNIMPLEMENTED, "The request asks for nothing that is known here.", answer);
}

// One stream: a question is read, answered, and then the next one. gRPC calls one method after the
// other; it is done with the stream in OnDone.
class Stream final : public ::grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>,
                     public StallingCall,
                     public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(::grpc::CallbackServerContext* context) : StallingCall(context) {}

  void Start(const absl::Status& refusal, Reception* reception) {
    self_ = shared_from_this();
    if (!refusal.ok()) return Finish(GrpcStatusOf(refusal));
    reception->Watch(weak_from_this());
    StartRead(&question_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(::grpc::Status::OK);  // no more questions
    const absl::Status answered = Guarded([this] { return TryAnswer(); });
    if (!answered.ok()) return Finish(GrpcStatusOf(answered));
    BeginWrite();
    StartWrite(&answer_);
  }

  void OnWriteDone(bool ok) override {
    EndWrite();
    if (!ok) return Finish(GrpcStatusOf(absl::CancelledError("the stream has ended")));
    StartRead(&question_);
  }

  void OnDone() override {
    EndWrite();
    self_.reset();
  }

 private:
  const std::string& request_id() const override { return id_; }

  absl::Status TryAnswer() {
    if (const size_t bytes = question_.Length(); bytes > kMostQuestionBytes) {
      return absl::InvalidArgumentError(Concat("the question has ", bytes, " bytes; at most ",
                                               kMostQuestionBytes, " are accepted"));
    }
    const auto question = std::make_shared<reflection::ServerReflectionRequest>();
    const absl::Status read = ReadMessage({.path = {}, .bytes = &question_, .message = question});
    if (!read.ok()) return read;
    reflection::ServerReflectionResponse answer;
    Answer(*question, &answer);
    WriteMessage(answer, &answer_);
    return absl::OkStatus();
  }

  const std::string id_ = MakeRequestId();
  std::shared_ptr<Stream> self_;  // until OnDone
  ByteBuffer question_;
  ByteBuffer answer_;
};

// ServerReflection: of either version.
template <class ServerReflection>
class Reflection final
    : public ServerReflection::template WithRawCallbackMethod_ServerReflectionInfo<
          typename ServerReflection::Service> {
 public:
  explicit Reflection(Reception* reception) : reception_(reception) {}

  ::grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* ServerReflectionInfo(
      ::grpc::CallbackServerContext* context) override {
    const std::string_view authorization =
        MetadataValue(context->client_metadata(), "authorization");
    const auto stream = std::make_shared<Stream>(context);
    stream->Start(
        reception_->gate().Authenticate(access::Area::kMonitoring, authorization).status(),
        reception_);
    return stream.get();
  }

 private:
  Reception* const reception_;
};

}  // namespace

std::vector<std::unique_ptr<::grpc::Service>> MakeReflection(Reception* reception) {
  using Newer = ::grpc::reflection::v1::ServerReflection;
  std::vector<std::unique_ptr<::grpc::Service>> services;
  services.push_back(std::make_unique<Reflection<Newer>>(reception));
  services.push_back(std::make_unique<Reflection<reflection::ServerReflection>>(reception));
  return services;
}

}  // namespace refrain::server::rpc
