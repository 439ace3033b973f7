#ifndef REFRAIN_ENGINE_MODEL_GGUF_FILE_H_
#define REFRAIN_ENGINE_MODEL_GGUF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tensor_table.h"
#include "engine/text/seeded_hash.h"

namespace refrain::engine {

// The numbers are those of the format.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// One metadata value, still in the file's bytes: `payload` holds `count` elements of `type`, a
// string being a 64-bit length and its bytes. A scalar is one element.
struct GgufValue {
  GgufType type = GgufType::kUint8;  // never kArray: of an array, the type of its elements
  bool is_array = false;
  uint64_t count = 1;
  std::span<const std::byte> payload;
};

// The structure of a GGUF file, version 2 or 3, little-endian.
//
// Parse checks every length, count and offset against the file's size before it is used, and
// copies no payload: names, values and tensors are views into `bytes`, which must outlive this.
// What keys and tensors mean is the caller's business. Immutable after Parse: any thread.
// InvalidArgument names the place and what is wrong; Unimplemented a version or form (big-endian,
// nested arrays) that is not read.
class GgufFile {
 public:
  static absl::StatusOr<GgufFile> Parse(std::span<const std::byte> bytes);

  uint32_t version() const { return version_; }
  const GgufValue* FindOrNull(std::string_view key) const;
  const std::vector<SourceTensor>& tensors() const { return tensors_; }

  // Adds the tensors of another part of the same model; its bytes must outlive this, too.
  void TakeTensors(GgufFile part);

 private:
  friend class GgufParser;

  uint32_t version_ = 0;
  std::unordered_map<std::string_view, GgufValue, SeededHash> metadata_;
  std::vector<SourceTensor> tensors_;
  std::list<std::string> unknown_types_;  // names that `tensors_` view, kept in place by a move
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_GGUF_FILE_H_
