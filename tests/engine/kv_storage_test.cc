#include "engine/kv_storage.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

namespace refrain::engine {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Memory that begins so many bytes behind a huge page's border.
class ShiftedDevice : public kernels::Device {
 public:
  explicit ShiftedDevice(size_t shift_bytes) : shift_bytes_(shift_bytes) {}

  absl::StatusOr<kernels::DeviceBuffer> Allocate(size_t bytes, bool) override {
    const size_t whole = (bytes + shift_bytes_) / kHugePageBytes + 1;
    auto* const data =
        static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, whole * kHugePageBytes));
    return kernels::DeviceBuffer(this, data + shift_bytes_, bytes);
  }
  absl::Status Copy(std::byte*, const std::byte*, size_t) override { return absl::OkStatus(); }
  absl::Status CopyToHost(std::byte*, const std::byte*, size_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyFromHost(std::byte*, const std::byte*, size_t) override {
    return absl::OkStatus();
  }
  size_t AvailableBytes() const override { return size_t{1} << 30; }

 private:
  void Free(std::byte* data, size_t) override { std::free(data - shift_bytes_); }

  const size_t shift_bytes_;
};

// Chunks of 64 KiB.
absl::Status Create(size_t shift_bytes, int32_t num_chunks) {
  const auto layout = kvcache::KvLayout::Create({.num_layers = 2,
                                                 .num_kv_heads = 2,
                                                 .head_dim = 64,
                                                 .chunk_tokens = 64,
                                                 .element = kvcache::KvElement::kF16});
  EXPECT_EQ(layout->chunk_bytes(), size_t{64} << 10);
  ShiftedDevice device(shift_bytes);
  return KvStorage::Create(device, *layout, num_chunks).status();
}

TEST(KvStorageTest, TakesMemoryThatIsAlignedAsDevicesPromise) {
  EXPECT_EQ(Create(0, 40), absl::OkStatus());
  EXPECT_EQ(Create(4096, 31), absl::OkStatus()) << "less than 2 MiB";
}

// Whoever touches pages ahead counts huge pages from the pool's begin.
TEST(KvStorageTest, RefusesMemoryThatIsNot) {
  for (const auto& [shift_bytes, num_chunks] : {std::pair{4096, 32}, {4096, 40}, {64, 31}}) {
    const absl::Status status = Create(shift_bytes, num_chunks);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << shift_bytes << ", " << num_chunks;
  }
  const std::string message(Create(4096, 40).message());
  EXPECT_NE(message.find("2621440 bytes at 0x"), std::string::npos) << message;
  EXPECT_NE(message.find("is not aligned to 2097152 bytes"), std::string::npos) << message;
}

}  // namespace
}  // namespace refrain::engine
