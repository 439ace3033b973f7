#include "tests/kernels/conformance/backends.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/worse.h"
#include "tests/support/cuda_cases.h"

namespace refrain::kernels {

std::unique_ptr<Backend> BackendCase::Make() const {
  if (!cuda.empty()) {
    if (auto backend = refrain::testing::MakeCudaBackend(cuda)) return backend;
    std::fprintf(stderr, "%s cannot be made\n", cuda.c_str());
    std::abort();
  }
  auto backend = cpu::CpuBackend::Create({.threads = threads, .isa = isa});
  if (!backend.ok()) {
    std::fprintf(stderr, "%s: %s\n", name().c_str(), backend.status().ToString().c_str());
    std::abort();
  }
  return *std::move(backend);
}

std::vector<BackendCase> BackendCases() {
  std::vector<BackendCase> cases;
  const std::vector<cpu::Isa> isas = cpu::SupportedIsas();
#ifndef __SANITIZE_THREAD__  // hours of arithmetic in one thread
  for (const cpu::Isa isa : isas) cases.push_back({std::string(cpu::Name(isa)), 1});
#endif
  cases.push_back({std::string(cpu::Name(isas.back())), 3});
  for (const std::string& name : refrain::testing::CudaBackendNames())
    cases.push_back({"", 0, name});
  return cases;
}

std::vector<float> RandomFloats(size_t count, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, double absolute,
                 double relative) {
  ASSERT_EQ(got.size(), want.size());
  size_t off = 0, first = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (error <= absolute + relative * std::fabs(want[i])) continue;  // false for NaN
    if (off++ == 0) first = i;
  }
  EXPECT_EQ(off, 0u) << "of " << got.size() << "; first at " << first << ": " << got[first]
                     << ", should be " << want[first];
}

void ExpectRowsClose(const std::vector<float>& got, const std::vector<float>& want, size_t cols,
                     double limit) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t row = 0; row < want.size(); row += cols) {
    double error = 0, length = 0;
    for (size_t i = row; i < row + cols; ++i) {
      error += std::pow(double{got[i]} - want[i], 2);
      length += double{want[i]} * want[i];
    }
    worst = kernels::Worse(worst, std::sqrt(error / length));
  }
  EXPECT_LT(worst, limit);
}

}  // namespace refrain::kernels
