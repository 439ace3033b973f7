#ifndef REFRAIN_TESTS_KERNELS_CONFORMANCE_LINEAR_ORACLE_H_
#define REFRAIN_TESTS_KERNELS_CONFORMANCE_LINEAR_ORACLE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/backends.h"

// What tests of products share: random weights of any type on a back end and on the reference, and
// how near to each other the two must be.

namespace refrain::kernels {

using BackendAndType = std::tuple<BackendCase, DType>;

// All that weights may be stored in, on every back end.
std::vector<BackendAndType> BackendsAndTypes();
std::string BackendAndTypeName(const ::testing::TestParamInfo<BackendAndType>& info);

// |got - want| over |want|, both as vectors.
double RelativeError(std::span<const float> got, std::span<const float> want);
// Of an element: the square root of the mean of squares.
double TypicalSize(std::span<const float> values);

// Stored rows of any type; dense ones from a normal distribution.
std::vector<std::byte> StoredRows(DType dtype, int64_t rows, int64_t cols, uint32_t seed);

// A weight on a back end and on the reference.
struct PackedTwice {
  PackedTwice(Backend& backend, ReferenceBackend& reference, std::span<const WeightSlice> slices,
              PackOptions options);
  // Of one slice.
  PackedTwice(Backend& backend, ReferenceBackend& reference, const WeightSlice& slice,
              PackOptions options);

  std::unique_ptr<LinearWeight> got, want;
};

// What the RelativeError of products may be. Exact weights and activations; f16 rounds both by up
// to 2^-11, bf16 by up to 2^-9. Beside quantised weights the CPU's activations have 15 bits, beside
// others in f16 they are exact; asked for, 8 bits.
double LinearTolerance(const BackendCase& backend, ComputeDType compute, DType dtype);

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CONFORMANCE_LINEAR_ORACLE_H_
