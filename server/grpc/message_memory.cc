#include "server/grpc/message_memory.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cstdint>

namespace refrain::server::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Of each element, with the block that it lies in and the pointer to it.
constexpr size_t kMessageBytes = 128;  // our largest that repeats: ChatMessage
constexpr size_t kStringBytes = 80;
constexpr size_t kNumberBytes = 16;
constexpr size_t kPackedNumberBytes = sizeof(int32_t);
constexpr size_t kUnknownBytes = 64;  // beside its value: Protobuf keeps what it does not know

class Counter {
 public:
  Counter(CodedInputStream* in, size_t most) : in_(in), most_(most) {}

  // Up to the stream's limit there are the fields of a message of that type. False where they are
  // malformed, or take too much.
  bool CountFields(const Descriptor& type) {
    while (const uint32_t tag = in_->ReadTag()) {
      const WireFormatLite::WireType wire_type = WireFormatLite::GetTagWireType(tag);
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      // With a value of another form than its own Protobuf does not know a field, either.
      if (field != nullptr && !MayHave(*field, wire_type)) field = nullptr;
      if (field == nullptr) bytes_ += kUnknownBytes;
      if (!CountValue(wire_type, field) || bytes_ > most_) return false;
    }
    return in_->BytesUntilLimit() == 0;
  }

  size_t bytes() const { return bytes_; }

 private:
  static bool MayHave(const FieldDescriptor& field, WireFormatLite::WireType wire_type) {
    // Of both enumerations the numbers are those of descriptor.proto.
    const auto type = static_cast<WireFormatLite::FieldType>(field.type());
    return wire_type == WireFormatLite::WireTypeForFieldType(type) ||
           (wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && field.is_packable());
  }

  bool CountValue(WireFormatLite::WireType wire_type, const FieldDescriptor* field_or_null) {
    uint64_t ignored = 0;
    switch (wire_type) {
      case WireFormatLite::WIRETYPE_VARINT:
        bytes_ += kNumberBytes;
        return in_->ReadVarint64(&ignored);
      case WireFormatLite::WIRETYPE_FIXED64:
        bytes_ += kNumberBytes;
        return in_->Skip(sizeof(uint64_t));
      case WireFormatLite::WIRETYPE_FIXED32:
        bytes_ += kNumberBytes;
        return in_->Skip(sizeof(uint32_t));
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return CountDelimited(field_or_null);
      case WireFormatLite::WIRETYPE_START_GROUP:  // none of ours: what is in it is unknown, too
      case WireFormatLite::WIRETYPE_END_GROUP:
        return true;
    }
    return false;
  }

  bool CountDelimited(const FieldDescriptor* field_or_null) {
    int length = 0;
    if (!in_->ReadVarintSizeAsInt(&length) || length > in_->BytesUntilLimit()) return false;
    const bool is_text =
        field_or_null == nullptr || field_or_null->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (is_text) {
      bytes_ += kStringBytes + static_cast<size_t>(length);
      return in_->Skip(length);
    }
    const CodedInputStream::Limit outer = in_->PushLimit(length);
    const bool counted = field_or_null->message_type() != nullptr
                             ? CountMessage(*field_or_null->message_type())
                             : CountPacked();
    in_->PopLimit(outer);
    return counted;
  }

  bool CountMessage(const Descriptor& type) {
    bytes_ += kMessageBytes;
    return CountFields(type);
  }

  // A number's last byte alone has no high bit.
  bool CountPacked() {
    while (in_->BytesUntilLimit() > 0) {
      const void* data = nullptr;
      int size = 0;
      if (!in_->GetDirectBufferPointer(&data, &size)) return false;
      const auto* const bytes = static_cast<const uint8_t*>(data);
      const auto numbers = std::count_if(bytes, bytes + size, [](uint8_t b) { return b < 0x80; });
      bytes_ += kPackedNumberBytes * static_cast<size_t>(numbers);
      if (!in_->Skip(size)) return false;
    }
    return true;
  }

  CodedInputStream* const in_;
  const size_t most_;
  size_t bytes_ = 0;
};

}  // namespace

size_t MemoryOnceRead(const ::grpc::ByteBuffer& bytes, const Descriptor& type, size_t most) {
  // It leaves them as they are.
  ::grpc::ProtoBufferReader reader(const_cast<::grpc::ByteBuffer*>(&bytes));
  if (!reader.status().ok()) return 0;
  CodedInputStream in(&reader);
  in.PushLimit(static_cast<int>(bytes.Length()));
  Counter counter(&in, most);
  counter.CountFields(type);
  return counter.bytes();
}

}  // namespace refrain::server::rpc
