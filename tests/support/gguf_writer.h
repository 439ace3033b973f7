#ifndef REFRAIN_TESTS_SUPPORT_GGUF_WRITER_H_
#define REFRAIN_TESTS_SUPPORT_GGUF_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace refrain::testing {

// Builds GGUF files, right ones and, as it checks nothing, wrong ones too. For tests; one thread.
//
//   GgufWriter writer;
//   writer.AddString("general.architecture", "llama");
//   writer.AddTensor("output_norm.weight", kGgmlF32, {64}, bytes);
//   std::string file = writer.Build();
class GgufWriter {
 public:
  // Numbers of the format.
  static constexpr uint32_t kTypeUint32 = 4;
  static constexpr uint32_t kTypeInt32 = 5;
  static constexpr uint32_t kTypeFloat32 = 6;
  static constexpr uint32_t kTypeString = 8;
  static constexpr uint32_t kTypeArray = 9;

  void set_version(uint32_t version) { version_ = version; }
  void set_alignment(uint32_t alignment) { alignment_ = alignment; }  // of the layout; adds no key

  void AddString(std::string_view key, std::string_view value);
  void AddUint16(std::string_view key, uint16_t value);
  void AddUint32(std::string_view key, uint32_t value);
  void AddFloat32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddStrings(std::string_view key, const std::vector<std::string>& values);
  void AddInt32s(std::string_view key, const std::vector<int32_t>& values);
  void AddFloat32s(std::string_view key, const std::vector<float>& values);
  // `payload` as it shall stand after the type number.
  void AddRaw(std::string_view key, uint32_t type, std::string_view payload);
  // `count` keys with their values, as another file has them.
  void AddValues(uint64_t count, std::string_view bytes);

  // `extents` innermost first, as the format has them.
  void AddTensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& extents,
                 std::string_view bytes);
  // A list entry with an offset of its own and no data.
  void AddTensorAt(std::string_view name, uint32_t type, const std::vector<uint64_t>& extents,
                   uint64_t offset);

  // Bytes before the tensor data, valid after Build.
  size_t header_bytes() const { return header_bytes_; }
  std::string Build();

 private:
  void AddKey(std::string_view key, uint32_t type);

  uint32_t version_ = 3;
  uint32_t alignment_ = 32;
  uint64_t num_values_ = 0;
  uint64_t num_tensors_ = 0;
  std::string values_;
  std::string tensors_;
  std::string data_;
  size_t header_bytes_ = 0;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_GGUF_WRITER_H_
