#include "kernels/cuda/cublas_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kVersionUnit = 10000;  // of cublasLtGetVersion, for the major version
constexpr uint32_t kAlignment = 16;  // that ProductShape promises

static_assert(sizeof(cublasLtMatmulAlgo_t) <= sizeof(ProductAlgorithm::bytes));

// The functions of the library that are used, by their names there.
struct Functions {
  decltype(&::cublasLtGetVersion) GetVersion = nullptr;
  decltype(&::cublasLtGetStatusName) GetStatusName = nullptr;
  decltype(&::cublasLtCreate) Create = nullptr;
  decltype(&::cublasLtDestroy) Destroy = nullptr;
  decltype(&::cublasLtMatmul) Matmul = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) AlgoGetHeuristic = nullptr;
  decltype(&::cublasLtMatmulAlgoCheck) AlgoCheck = nullptr;
  decltype(&::cublasLtMatmulDescCreate) DescCreate = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) DescDestroy = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) DescSetAttribute = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) LayoutCreate = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) LayoutDestroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) PreferenceCreate = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) PreferenceDestroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) PreferenceSetAttribute = nullptr;

  absl::Status Load(void* library) {
    absl::Status status;
    const auto load = [&](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      if (*function == nullptr) {
        status.Update(absl::FailedPreconditionError(absl::StrCat("cuBLASLt has no ", name)));
      }
    };
    load("cublasLtGetVersion", &GetVersion);
    load("cublasLtGetStatusName", &GetStatusName);
    load("cublasLtCreate", &Create);
    load("cublasLtDestroy", &Destroy);
    load("cublasLtMatmul", &Matmul);
    load("cublasLtMatmulAlgoGetHeuristic", &AlgoGetHeuristic);
    load("cublasLtMatmulAlgoCheck", &AlgoCheck);
    load("cublasLtMatmulDescCreate", &DescCreate);
    load("cublasLtMatmulDescDestroy", &DescDestroy);
    load("cublasLtMatmulDescSetAttribute", &DescSetAttribute);
    load("cublasLtMatrixLayoutCreate", &LayoutCreate);
    load("cublasLtMatrixLayoutDestroy", &LayoutDestroy);
    load("cublasLtMatmulPreferenceCreate", &PreferenceCreate);
    load("cublasLtMatmulPreferenceDestroy", &PreferenceDestroy);
    load("cublasLtMatmulPreferenceSetAttribute", &PreferenceSetAttribute);
    return status;
  }
};

// Stays loaded: what a library of this size leaves behind when it goes is not worth finding out.
absl::StatusOr<void*> LoadLibrary() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  std::string problem;
  for (const std::string& path : {name, absl::StrCat("/usr/local/cuda/lib64/", name)}) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (problem.empty()) problem = dlerror();
  }
  return absl::NotFoundError(problem);
}

std::string VersionText(size_t version) {
  return absl::StrCat(version / kVersionUnit, ".", version % kVersionUnit / 100, ".",
                      version % 100);
}

class CublasLt final : public ProductLibrary {
 public:
  static absl::StatusOr<std::unique_ptr<ProductLibrary>> Open() {
    const absl::StatusOr<void*> library = LoadLibrary();
    if (!library.ok()) return library.status();
    std::unique_ptr<CublasLt> opened(new CublasLt);
    if (absl::Status status = opened->functions_.Load(*library); !status.ok()) return status;
    const size_t version = opened->functions_.GetVersion();
    opened->name_ = absl::StrCat("cuBLASLt ", VersionText(version));
    if (version / kVersionUnit != CUBLAS_VER_MAJOR) {
      return absl::FailedPreconditionError(
          absl::StrCat(opened->name_, " is not of version ", CUBLAS_VER_MAJOR));
    }
    absl::Status status =
        opened->StatusOf(opened->functions_.Create(&opened->handle_), "cublasLtCreate");
    if (!status.ok()) return absl::FailedPreconditionError(std::string(status.message()));
    return std::unique_ptr<ProductLibrary>(std::move(opened));
  }
  ~CublasLt() override {
    if (handle_ != nullptr) functions_.Destroy(handle_);
  }

  std::string_view name() const override { return name_; }

  absl::StatusOr<std::vector<ProductAlgorithm>> Find(const ProductShape& shape,
                                                     size_t workspace_bytes, int most) override {
    Description description(functions_);
    if (absl::Status status = Describe(shape, &description); !status.ok()) return status;
    cublasLtMatmulPreference_t preference = nullptr;
    absl::Status status =
        StatusOf(functions_.PreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    if (!status.ok()) return status;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      status.Update(
          StatusOf(functions_.PreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                   "cublasLtMatmulPreferenceSetAttribute"));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int found = 0;
    if (status.ok()) {
      const cublasStatus_t told = functions_.AlgoGetHeuristic(
          handle_, description.product, description.weight, description.x, description.out,
          description.out, preference, most, results.data(), &found);
      if (told == CUBLAS_STATUS_NOT_SUPPORTED) {
        found = 0;  // there is none
      } else {
        status = StatusOf(told, "cublasLtMatmulAlgoGetHeuristic");
      }
    }
    functions_.PreferenceDestroy(preference);
    if (!status.ok()) return status;
    std::vector<ProductAlgorithm> algorithms;
    for (int i = 0; i < found; ++i) {
      if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
      ProductAlgorithm algorithm;
      std::memcpy(algorithm.bytes, &results[i].algo, sizeof(results[i].algo));
      algorithms.push_back(algorithm);
    }
    return algorithms;
  }

  bool Computes(const ProductShape& shape, const ProductAlgorithm& algorithm,
                size_t workspace_bytes) override {
    Description description(functions_);
    if (!Describe(shape, &description).ok()) return false;
    const cublasLtMatmulAlgo_t algo = AlgoOf(algorithm);
    cublasLtMatmulHeuristicResult_t result{};
    return functions_.AlgoCheck(handle_, description.product, description.weight, description.x,
                                description.out, description.out, &algo,
                                &result) == CUBLAS_STATUS_SUCCESS &&
           result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes;
  }

  absl::Status Multiply(const ProductShape& shape, const ProductAlgorithm& algorithm,
                        const ProductOperands& operands, size_t workspace_bytes,
                        Stream& stream) override {
    Description description(functions_);
    if (absl::Status status = Describe(shape, &description); !status.ok()) return status;
    const cublasLtMatmulAlgo_t algo = AlgoOf(algorithm);
    const float alpha = 1.0f, beta = shape.accumulate ? 1.0f : 0.0f;
    return StatusOf(
        functions_.Matmul(handle_, description.product, &alpha, operands.weight, description.weight,
                          operands.x, description.x, &beta, operands.out, description.out,
                          operands.out, description.out, &algo, operands.workspace, workspace_bytes,
                          static_cast<cudaStream_t>(stream.native())),
        "cublasLtMatmul");
  }

 private:
  // The library's matrices are column by column: it is given W^T [k, n], to be transposed, and
  // x^T [k, rows], and writes out^T [n, rows].
  struct Description {
    explicit Description(const Functions& functions) : functions(functions) {}
    ~Description() {
      for (cublasLtMatrixLayout_t layout : {weight, x, out}) {
        if (layout != nullptr) functions.LayoutDestroy(layout);
      }
      if (product != nullptr) functions.DescDestroy(product);
    }
    Description(const Description&) = delete;
    Description& operator=(const Description&) = delete;

    const Functions& functions;
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;
  };

  CublasLt() = default;

  absl::Status StatusOf(cublasStatus_t status, std::string_view call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(std::string(call), ": ", functions_.GetStatusName(status)));
  }

  static cublasLtMatmulAlgo_t AlgoOf(const ProductAlgorithm& algorithm) {
    cublasLtMatmulAlgo_t algo;
    std::memcpy(&algo, algorithm.bytes, sizeof(algo));
    return algo;
  }

  absl::Status Describe(const ProductShape& shape, Description* description) const {
    const cudaDataType_t type = shape.dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
    absl::Status status =
        StatusOf(functions_.DescCreate(&description->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    if (!status.ok()) return status;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    status = StatusOf(functions_.DescSetAttribute(description->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &transposed, sizeof(transposed)),
                      "cublasLtMatmulDescSetAttribute");
    const auto lay_out = [&](cublasLtMatrixLayout_t* layout, cudaDataType_t element, int64_t rows,
                             int64_t cols, int64_t stride) {
      if (!status.ok()) return;
      status = StatusOf(functions_.LayoutCreate(layout, element, static_cast<uint64_t>(rows),
                                                static_cast<uint64_t>(cols), stride),
                        "cublasLtMatrixLayoutCreate");
    };
    lay_out(&description->weight, type, shape.k, shape.n, shape.weight_stride);
    lay_out(&description->x, type, shape.k, shape.rows, shape.x_stride);
    lay_out(&description->out, CUDA_R_32F, shape.n, shape.rows, shape.out_stride);
    return status;
  }

  Functions functions_;
  cublasLtHandle_t handle_ = nullptr;
  std::string name_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenCublasLt() { return CublasLt::Open(); }

}  // namespace refrain::kernels::cuda
