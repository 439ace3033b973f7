#include "server/grpc/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include "engine/annotated_mutex.h"
#include "server/http/tls.h"

namespace refrain::server::rpc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLookPeriod{1};

// Changes when the file is written or replaced.
using FileState = std::array<int64_t, 4>;

FileState StateOf(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return {};
  return {static_cast<int64_t>(about.st_ino), about.st_size, about.st_mtim.tv_sec,
          about.st_mtim.tv_nsec};
}

// The pair that is in use, and the files it is from. Any thread.
class WatchedPair {
 public:
  WatchedPair(std::string cert_file, std::string key_file, Log* log)
      : cert_file_(std::move(cert_file)), key_file_(std::move(key_file)), log_(log) {}

  absl::Status Load() {
    MutexLock lock(mutex_);
    return Read();
  }

  // The pair when gRPC does not have it yet, else null.
  grpc_ssl_server_certificate_config* TakeNews() {
    MutexLock lock(mutex_);
    if (const auto now = Clock::now(); now - looked_ >= kLookPeriod) {
      looked_ = now;
      LookAgain();
    }
    if (!std::exchange(is_new_, false)) return nullptr;
    const grpc_ssl_pem_key_cert_pair pair = {pem_.private_key.c_str(),
                                             pem_.certificate_chain.c_str()};
    // This interface insists on authorities for clients, which are asked for no certificate.
    return grpc_ssl_server_certificate_config_create(pem_.certificate_chain.c_str(), &pair, 1);
  }

 private:
  using States = std::array<FileState, 2>;

  // What changes between this and the reading is seen the next time.
  States Look() const { return {StateOf(cert_file_), StateOf(key_file_)}; }

  absl::Status Read() REFRAIN_REQUIRES(mutex_) {
    const States states = Look();
    absl::StatusOr<http::PemFiles> pem = http::ReadPemFiles(cert_file_, key_file_);
    if (!pem.ok()) return pem.status();
    pem_ = *std::move(pem);
    taken_ = states;
    is_new_ = true;
    return absl::OkStatus();
  }

  void LookAgain() REFRAIN_REQUIRES(mutex_) {
    const States states = Look();
    if (states == taken_) return;
    const absl::Status status = Read();
    if (status.ok()) {
      log_->Info("reloaded", {{"what", "gRPC certificate"}});
    } else if (states != refused_) {
      refused_ = states;
      log_->Error("cannot reload, the old one stays in use",
                  {{"what", "gRPC certificate"}, {"status", std::string(status.message())}});
    }
  }

  const std::string cert_file_;
  const std::string key_file_;
  Log* const log_;
  Mutex mutex_;
  http::PemFiles pem_ REFRAIN_GUARDED_BY(mutex_);
  bool is_new_ REFRAIN_GUARDED_BY(mutex_) = false;
  States taken_ REFRAIN_GUARDED_BY(mutex_) = {};
  States refused_ REFRAIN_GUARDED_BY(mutex_) = {};  // said in the log
  Clock::time_point looked_ REFRAIN_GUARDED_BY(mutex_) = Clock::now();
};

grpc_ssl_certificate_config_reload_status Fetch(void* pair,
                                                grpc_ssl_server_certificate_config** config) {
  *config = static_cast<WatchedPair*>(pair)->TakeNews();
  return *config == nullptr ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED
                            : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

// gRPC's C++ interface has TLS with certificates that it watches itself, each file alone; the one
// that asks for whole pairs is in its C interface.
class WatchedCredentials final : public ::grpc::ServerCredentials {
 public:
  explicit WatchedCredentials(std::unique_ptr<WatchedPair> pair)
      : pair_(std::move(pair)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, Fetch, pair_.get()))) {}
  ~WatchedCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<::grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  const std::unique_ptr<WatchedPair> pair_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<::grpc::ServerCredentials>> MakeCredentials(
    const std::string& cert_file, const std::string& key_file, Log* log) {
  if (cert_file.empty()) return ::grpc::InsecureServerCredentials();
  auto pair = std::make_unique<WatchedPair>(cert_file, key_file, log);
  if (absl::Status status = pair->Load(); !status.ok()) return status;
  return std::make_shared<WatchedCredentials>(std::move(pair));
}

}  // namespace refrain::server::rpc
