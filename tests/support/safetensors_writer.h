#ifndef REFRAIN_TESTS_SUPPORT_SAFETENSORS_WRITER_H_
#define REFRAIN_TESTS_SUPPORT_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace refrain::testing {

// Builds safetensors files; checks nothing. For tests; one thread.
class SafetensorsWriter {
 public:
  void AddTensor(std::string_view name, std::string_view dtype, const std::vector<int64_t>& shape,
                 std::string_view bytes);
  // `entry` is the JSON after the name.
  void AddEntry(std::string_view name, std::string_view entry);
  std::string Build() const;

 private:
  std::string header_;
  std::string data_;
};

// A file of any header text.
std::string SafetensorsFileOf(std::string_view header, std::string_view data);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_SAFETENSORS_WRITER_H_
