#include "client/cpp/channel_credentials.h"

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::client {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& field, const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, field,
                     absl::StrCat("client option '", field, "': can't read '", path, "'"));
  return text.str();
}

absl::Status BadOption(const std::string& field, const std::string& message) {
  return InvalidArgument(ErrorReason::kOptionInvalid, field, absl::StrCat("client option '", field, "': ", message));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const TlsOptions& options) {
  if (options.cert_file.empty() != options.key_file.empty())
    return BadOption("tls.cert_file", "a certificate and its key are given together");
  if (!options.enabled) {
    if (!options.ca_file.empty() || !options.cert_file.empty())
      return BadOption("tls.enabled", "files are given, and TLS is off");
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions ssl;
  FUSELINE_ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadPem("tls.ca_file", options.ca_file));
  FUSELINE_ASSIGN_OR_RETURN(ssl.pem_cert_chain, ReadPem("tls.cert_file", options.cert_file));
  FUSELINE_ASSIGN_OR_RETURN(ssl.pem_private_key, ReadPem("tls.key_file", options.key_file));
  return grpc::SslCredentials(ssl);
}

}  // namespace fuseline::client
