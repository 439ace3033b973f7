#ifndef REFRAIN_TESTS_KERNELS_CUDA_OPERAND_LAYOUT_H_
#define REFRAIN_TESTS_KERNELS_CUDA_OPERAND_LAYOUT_H_

#include <functional>

// Where the elements of a warpgroup product's operand lie in shared memory, written down for tests
// element by element.
namespace refrain::kernels::cuda {

// Byte of element (row, k) of an operand.
using ByteOf = std::function<int(int row, int k)>;

// K-major panels [rows][span] from byte `begin` on, their 16-byte units exchanged as the swizzle of
// that width (2 * span bytes) does.
inline ByteOf RowsInPanels(int begin, int span, int rows) {
  return [=](int row, int k) {
    const int unit = k % span / 8;
    const int swizzled = span == 64 ? unit ^ row % 8 : unit ^ row / 2 % 4;
    return begin + (k / span * rows + row) * span * 2 + swizzled * 16 + k % 8 * 2;
  };
}

// The other way round: k counts the rows of the panels, which are cut along the operand's rows.
inline ByteOf Turned(const ByteOf& other) {
  return [other](int row, int k) { return other(k, row); };
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_TESTS_KERNELS_CUDA_OPERAND_LAYOUT_H_
