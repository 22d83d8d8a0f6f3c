// What the server shows and asks of its clients where it speaks TLS. Pipeline: TlsFiles -> MakeServerCredentials ->
// gRPC's listening port. Certificates that are replaced (renewed, say) are used for new connections without a restart.
// Thread-safety: a pure function. Blocking: reads the files. Tested by tests/unit/service/tls_test.cc
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace grpc {
class ServerCredentials;
}

namespace fuseline::service {

struct TlsFiles {
  std::string cert;       // the server's certificate, then those between it and the root, PEM; empty: plain text
  std::string key;        // its key, PEM
  std::string client_ca;  // not empty: clients must show a certificate of these authorities, PEM
  absl::Duration refresh = absl::Minutes(1);  // how often they are looked at; whole seconds, at least one
};

// Errors: INVALID_ARGUMENT (kOptionInvalid) where only some of the files are named, or one holds no PEM; NOT_FOUND
// (kInputOutput) where one can't be read. Whether key and certificate belong together shows when they are used.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files);

}  // namespace fuseline::service
