#ifndef REFRAIN_TESTS_SUPPORT_WORSE_H_
#define REFRAIN_TESTS_SUPPORT_WORSE_H_

#include "kernels/worse.h"

namespace refrain::testing {

using kernels::Worse;

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_WORSE_H_
