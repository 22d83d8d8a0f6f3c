#include "server/service/tls_credentials.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace fuseline::service {
namespace {

// gRPC itself would go on without a file that it can't use, and fail every handshake.
absl::Status CheckPem(const std::string& flag, const std::string& path, const std::string& kind) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, flag,
                     absl::StrCat(flag, ": can't read '", path, "'"));
  if (!absl::StrContains(text.str(), "-----BEGIN ") || !absl::StrContains(text.str(), kind))
    return InvalidArgument(ErrorReason::kOptionInvalid, flag, absl::StrCat(flag, ": '", path, "' holds no PEM ", kind));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files) {
  if (files.cert.empty() != files.key.empty() || (files.cert.empty() && !files.client_ca.empty()))
    return InvalidArgument(ErrorReason::kOptionInvalid, "tls_cert_file",
                           "TLS needs both tls_cert_file and tls_key_file");
  if (files.cert.empty()) return grpc::InsecureServerCredentials();
  FUSELINE_RETURN_IF_ERROR(CheckPem("tls_cert_file", files.cert, "CERTIFICATE"));
  FUSELINE_RETURN_IF_ERROR(CheckPem("tls_key_file", files.key, "PRIVATE KEY"));
  if (!files.client_ca.empty())
    FUSELINE_RETURN_IF_ERROR(CheckPem("tls_client_ca_file", files.client_ca, "CERTIFICATE"));
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.cert, files.client_ca,
          static_cast<unsigned>(std::max<int64_t>(1, absl::ToInt64Seconds(files.refresh)))));
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace fuseline::service
