#ifndef REFRAIN_KERNELS_WORSE_H_
#define REFRAIN_KERNELS_WORSE_H_

#include <cmath>

namespace refrain::kernels {

// The greater of two errors, NaN if either is: std::max drops one, and every limit holds of none.
inline double Worse(double a, double b) { return std::isnan(a) || b <= a ? a : b; }

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_WORSE_H_
