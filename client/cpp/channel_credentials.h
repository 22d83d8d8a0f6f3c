// How a client's connections are secured. Pipeline: TlsOptions -> MakeChannelCredentials -> gRPC channels.
// Thread-safety: a pure function. Blocking: reads the files. Tested by tests/unit/client/channel_credentials_test.cc
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "grpcpp/security/credentials.h"

namespace fuseline::client {

// Errors: INVALID_ARGUMENT (kOptionInvalid) where a certificate is named without its key, or files without TLS;
// NOT_FOUND (kInputOutput) for a file that can't be read.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const TlsOptions& options);

}  // namespace fuseline::client
