#ifndef REFRAIN_SERVER_UNBOUNDED_NUMBERS_H_
#define REFRAIN_SERVER_UNBOUNDED_NUMBERS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace refrain::server {

// The numbers of a JSON text that no double holds (`1e999`), and what Python writes for those that
// are none (`NaN`, `Infinity`, `-Infinity`): its json.loads takes them, JSON parsers do not.
struct UnboundedNumbers {
  struct One {
    size_t index;  // among all numbers of the text
    double value;  // infinite, or NaN
  };

  std::string text;       // with 0 in place of each
  std::vector<One> ones;  // in order
};

// Linear in the text, of which all else stays as it is, well formed or not. Pure; any thread.
UnboundedNumbers TakeUnboundedNumbers(std::string_view json);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_UNBOUNDED_NUMBERS_H_
