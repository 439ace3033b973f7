#ifndef REFRAIN_TESTS_SUPPORT_CERTIFICATE_H_
#define REFRAIN_TESTS_SUPPORT_CERTIFICATE_H_

#include <string>

namespace refrain::testing {

// A certificate that vouches for itself and its key, as PEM.
struct PemPair {
  std::string certificate;
  std::string key;
};

// For `localhost` and 127.0.0.1, good for `good_for_s` (below 0: it has ended); each call makes
// another key. `common_name` tells certificates apart. Ends the program where OpenSSL fails.
PemPair MakeCertificate(const std::string& common_name, int good_for_s = 3600);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_CERTIFICATE_H_
