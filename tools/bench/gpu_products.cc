#include "tools/bench/gpu_products.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tools/bench/random_weight.h"

namespace refrain::bench {

using kernels::DType;

namespace {

constexpr DType kDTypes[] = {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K};
constexpr int kSecondCopyRows = 128;  // fewer are not worth a line

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <class T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

}  // namespace

void RunGpuProducts(kernels::Backend& backend, const ProductsShape& shape, int rounds,
                    GpuReport& report) {
  GpuTable table;
  table.name = "products";
  table.about = "Products of a few rows by a weight of " + std::to_string(shape.n) + " x " +
                std::to_string(shape.k) +
                " that is not in the cache, rounding of x included; medians of " +
                "calls one behind the other, launched one by one.";
  table.columns = {"weight", "second copy",     "rows",          "products by", "us", "least",
                   "most",   "GB/s of weights", "MB of a weight"};
  const int64_t most_rows = *std::ranges::max_element(shape.rows);
  auto memory =
      Must(backend.device().Allocate(most_rows * (shape.n + shape.k) * sizeof(float), false));
  auto* const x = reinterpret_cast<float*>(memory.data());
  float* const out = x + most_rows * shape.k;
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(most_rows * shape.k));
  for (float& value : values) value = normal(random);
  Must(backend.device().CopyFromHost(memory.data(),
                                     reinterpret_cast<const std::byte*>(values.data()),
                                     values.size() * sizeof(float)));
  const auto measure = [&](DType dtype, bool second_copy) {
    const std::vector<std::byte> data = RandomWeight(dtype, shape.n, shape.k, 1);
    const kernels::WeightSlice slice = {dtype, shape.n, shape.k, data.data(), {}};
    const size_t bytes = second_copy ? static_cast<size_t>(shape.n * shape.k) * sizeof(uint16_t)
                                     : data.size();  // that many rows read
    const size_t count = std::max<size_t>(2, shape.working_set_bytes / bytes + 1);
    std::vector<std::unique_ptr<kernels::LinearWeight>> weights;
    for (size_t i = 0; i < count; ++i) {
      weights.push_back(Must(backend.PackLinear({&slice, 1}, {.second_copy = second_copy})));
    }
    for (const int rows : shape.rows) {
      if (second_copy && rows < kSecondCopyRows) continue;
      const auto run = [&] {
        for (int i = 0; i < shape.calls; ++i) {
          backend.Linear({weights[i % weights.size()].get(), kernels::F32View(x, rows, shape.k),
                          kernels::F32View(out, rows, shape.n)});
        }
        Must(backend.Synchronize());
      };
      run();  // warm
      std::vector<double> seconds;
      for (int i = 0; i < rounds; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        run();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        seconds.push_back(took.count() / shape.calls);
      }
      std::sort(seconds.begin(), seconds.end());
      const double median = seconds[seconds.size() / 2];
      table.rows.push_back({std::string(kernels::Traits(dtype).name),
                            std::string(second_copy ? "yes" : "no"),
                            rows,
                            backend.info().products,
                            {median * 1e6, 1},
                            {seconds.front() * 1e6, 1},
                            {seconds.back() * 1e6, 1},
                            {static_cast<double>(bytes) / median * 1e-9, 0},
                            {static_cast<double>(weights[0]->resident_bytes()) * 1e-6, 1}});
    }
  };
  for (const DType dtype : kDTypes) {
    measure(dtype, /*second_copy=*/false);
    const auto& copies = backend.info().second_copies;
    if (std::ranges::find(copies, dtype) != copies.end()) measure(dtype, /*second_copy=*/true);
  }
  report.tables.push_back(std::move(table));
}

}  // namespace refrain::bench
