#ifndef REFRAIN_TESTS_KERNELS_CONFORMANCE_BACKENDS_H_
#define REFRAIN_TESTS_KERNELS_CONFORMANCE_BACKENDS_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace refrain::kernels {

// A back end under test: the CPU back end at one instruction-set level with a number of threads, or
// a CUDA back end (tests/support/cuda_cases.h).
struct BackendCase {
  std::string isa;
  int threads;
  std::string cuda = "";  // its name

  std::string name() const {
    return cuda.empty() ? isa + "_" + std::to_string(threads) + "threads" : cuda;
  }
  std::unique_ptr<Backend> Make() const;  // never null; a failure ends the test program
};

inline std::ostream& operator<<(std::ostream& out, const BackendCase& c) { return out << c.name(); }

// Every level that this machine can run, each with one thread and the best with three, and the CUDA
// back ends.
std::vector<BackendCase> BackendCases();

// `count` floats from a normal distribution, the same for the same seed.
std::vector<float> RandomFloats(size_t count, uint32_t seed, float scale = 1.0f);

// Asserts |got - want| <= absolute + relative * |want| for every element; names the first that is
// off, and the number of them.
void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, double absolute,
                 double relative);

// Asserts of every row of `cols` that the error is shorter than `limit` times the row, by Euclidean
// lengths.
void ExpectRowsClose(const std::vector<float>& got, const std::vector<float>& want, size_t cols,
                     double limit);

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CONFORMANCE_BACKENDS_H_
