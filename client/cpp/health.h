// Asks a server whether it takes work, with the standard grpc.health.v1.Health service: what balancers, Kubernetes and
// `fuseline health` ask. Pipeline: address -> CheckHealth -> grpc.health.v1.Health/Check. Needs none of Fuseline's own
// services, so it works with any gRPC server. The messages are written and read by hand: generated classes here would
// clash with the copy that a program may bring.
// Thread-safety: a pure function. Blocking: up to `timeout`. Tested by tests/unit/client/health_test.cc
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"

namespace fuseline::client {

// OK where the server answers SERVING. Errors: UNAVAILABLE where it answers anything else (it drains) or can't be
// reached; NOT_FOUND for a `service` that it does not know; DEADLINE_EXCEEDED after `timeout`. `service`: empty for the
// server as a whole, or a full name ("fuseline.v1.CompileService").
// Besides, those of MakeChannelCredentials.
absl::Status CheckHealth(const std::string& address, const std::string& service, absl::Duration timeout,
                         const TlsOptions& tls = {});

}  // namespace fuseline::client
