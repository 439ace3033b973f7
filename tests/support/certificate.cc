#include "tests/support/certificate.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace refrain::testing {
namespace {

void Check(bool good) {
  if (!good) std::abort();
}

std::string TextOf(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<size_t>(size)};
}

void AddNames(X509* certificate) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  Check(names != nullptr && X509_add_ext(certificate, names, -1) == 1);
  X509_EXTENSION_free(names);
}

}  // namespace

PemPair MakeCertificate(const std::string& common_name, int good_for_s) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"),
                                                                &EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
  Check(key != nullptr && certificate != nullptr);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), std::min(0, good_for_s) - 60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), good_for_s);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate.get(), name);
  AddNames(certificate.get());
  Check(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);

  const std::unique_ptr<BIO, decltype(&BIO_free)> certificate_text(BIO_new(BIO_s_mem()), &BIO_free);
  const std::unique_ptr<BIO, decltype(&BIO_free)> key_text(BIO_new(BIO_s_mem()), &BIO_free);
  Check(PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1);
  Check(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                 nullptr) == 1);
  return {TextOf(certificate_text.get()), TextOf(key_text.get())};
}

}  // namespace refrain::testing
