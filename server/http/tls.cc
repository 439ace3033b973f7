#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/ssl/context.hpp>
#include <ctime>
#include <utility>

#include "server/concat.h"
#include "server/read_file.h"

namespace refrain::server::http {

namespace ssl = boost::asio::ssl;

namespace {

constexpr size_t kMaxPemBytes = 1 << 20;

absl::StatusOr<std::shared_ptr<ssl::context>> MakeContext(const PemFiles& pem,
                                                          const std::string& cert_file,
                                                          const std::string& key_file) {
  const auto refuse = [](const std::string& file, std::string_view what) {
    ERR_clear_error();
    return absl::InvalidArgumentError(Concat(file, ": ", what));
  };
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  boost::system::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1 | ssl::context::no_sslv3,
                       error);
  if (error) return absl::InternalError("TLS options were refused");
  // A password would be asked for on a terminal that is not there.
  context->set_password_callback(
      [](size_t, ssl::context::password_purpose) { return std::string(); }, error);
  context->use_certificate_chain(
      boost::asio::buffer(pem.certificate_chain.data(), pem.certificate_chain.size()), error);
  if (error) return refuse(cert_file, "is not a certificate chain in PEM");
  context->use_private_key(boost::asio::buffer(pem.private_key.data(), pem.private_key.size()),
                           ssl::context::pem, error);
  if (error) {
    return refuse(key_file,
                  "is not a private key in PEM without a password that fits the certificate");
  }
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return refuse(key_file, "does not fit the certificate");
  }
  // Memory of idle connections is given back.
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  return context;
}

}  // namespace

absl::StatusOr<PemFiles> ReadPemFiles(const std::string& cert_file, const std::string& key_file) {
  absl::StatusOr<std::string> chain = ReadFile("", cert_file, kMaxPemBytes);
  if (!chain.ok()) return chain.status();
  absl::StatusOr<std::string> key = ReadFile("", key_file, kMaxPemBytes);
  if (!key.ok()) return key.status();
  PemFiles pem{.certificate_chain = *std::move(chain), .private_key = *std::move(key)};
  if (const auto context = MakeContext(pem, cert_file, key_file); !context.ok()) {
    return context.status();
  }
  return pem;
}

TlsCertificate::TlsCertificate(std::string cert_file, std::string key_file)
    : cert_file_(std::move(cert_file)), key_file_(std::move(key_file)) {}

absl::StatusOr<std::shared_ptr<TlsCertificate>> TlsCertificate::Load(std::string cert_file,
                                                                     std::string key_file) {
  std::shared_ptr<TlsCertificate> certificate(
      new TlsCertificate(std::move(cert_file), std::move(key_file)));
  if (absl::Status status = certificate->Reload(); !status.ok()) return status;
  return certificate;
}

absl::Status TlsCertificate::Reload() {
  const absl::StatusOr<PemFiles> pem = ReadPemFiles(cert_file_, key_file_);
  if (!pem.ok()) return pem.status();
  absl::StatusOr<std::shared_ptr<ssl::context>> context = MakeContext(*pem, cert_file_, key_file_);
  if (!context.ok()) return context.status();
  MutexLock lock(mutex_);
  context_ = *std::move(context);
  return absl::OkStatus();
}

std::shared_ptr<ssl::context> TlsCertificate::context() const {
  MutexLock lock(mutex_);
  return context_;
}

std::string TlsCertificate::expires() const {
  const std::shared_ptr<ssl::context> context = this->context();
  const X509* const certificate = SSL_CTX_get0_certificate(context->native_handle());
  std::tm utc{};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &utc) != 1) {
    return "unknown";
  }
  char text[40];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc));
}

bool TlsCertificate::has_expired() const {
  const std::shared_ptr<ssl::context> context = this->context();
  const X509* const certificate = SSL_CTX_get0_certificate(context->native_handle());
  return certificate != nullptr && X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
}

}  // namespace refrain::server::http
