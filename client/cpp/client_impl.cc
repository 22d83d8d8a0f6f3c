// Tested by tests/unit/client/client_test.cc
#include "client/cpp/client_impl.h"

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "client/cpp/error_details.h"
#include "common/ir/canonical.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace fuseline::client {

namespace {

// The connection broke, or a proxy gave the call up, before the server's answer was here. Our server says why it fails,
// so a reason-less error about a reset stream is not its answer; nor is CANCELLED, by which gRPC answers for a server
// that shut down before it took the call.
bool IsLost(const absl::Status& error) {
  if (absl::IsUnavailable(error)) return true;
  if (GetErrorReason(error) != ErrorReason::kUnspecified) return false;
  return absl::IsCancelled(error) || ((absl::IsInternal(error) || absl::IsUnknown(error)) &&
                                      absl::StrContains(std::string(error.message()), "RST_STREAM"));
}

absl::Status NoServerFor(const Route& route, size_t server_count, const std::string& reasons) {
  const std::string what = absl::StrCat(route.need == Route::Need::kCompile ? "compile for" : "run", " ",
                                        route.target.empty() ? "any target" : absl::StrCat("'", route.target, "'"));
  return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable,
                   route.target.empty() ? "target" : route.target,
                   absl::StrCat("none of the ", server_count, " servers can ", what, ": ", reasons));
}

}  // namespace

absl::Status ErrorOf(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return DecodeError(static_cast<int>(status.error_code()), status.error_message(), status.error_details());
}

Client::Impl::Impl(std::unique_ptr<ServerPool> servers, const ClientOptions& options)
    : options_(options),
      servers_(std::move(servers)),
      memory_(options.remember_fingerprints ? options.max_remembered : 0),
      affinities_(options.max_remembered),
      pinned_(options.pinned) {}

void Client::Impl::Prepare(grpc::ClientContext& context, absl::Time deadline, const Route& route) const {
  if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
  if (!options_.owner.empty()) context.AddMetadata("fuseline-owner", options_.owner);
  if (route.key.has_value())
    context.AddMetadata("x-fuseline-affinity", absl::StrCat(absl::Hex(*route.key, absl::kZeroPad16)));
}

absl::Status Client::Impl::WithRetries(const Route& route, Attempt attempt) {
  const absl::Time deadline = absl::Now() + options_.deadline;
  absl::Duration backoff = options_.initial_backoff;
  absl::BitGen random;
  for (int count = 1;; ++count) {
    absl::Status lost;     // of the last one that did not answer
    absl::Status refusal;  // of the first one whose answer another might better
    std::string reasons;   // why the servers can't serve the route
    const absl::StatusOr<std::vector<PooledServerPtr>> servers = servers_->Order(route, deadline);
    if (!servers.ok() && !absl::IsUnavailable(servers.status())) return servers.status();
    if (!servers.ok()) lost = servers.status();
    const size_t server_count = servers.ok() ? servers->size() : 0;
    for (size_t i = 0; i < server_count; ++i) {
      PooledServer& server = *(*servers)[i];
      absl::Status error = servers_->Check(server, route, deadline);
      if (absl::IsFailedPrecondition(error)) {
        absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", server.address(), ": ", std::string(error.message()));
        continue;
      }
      if (error.ok()) {
        grpc::ClientContext context;
        Prepare(context, deadline, route);
        error = ErrorOf(attempt(server, context));
        if (error.ok()) {
          servers_->Succeeded(server);
          return error;
        }
      }
      if (IsLost(error)) {
        servers_->Failed(server, GetRetryDelay(error));
        lost = std::move(error);
        if (absl::Now() >= deadline) return lost;
        continue;
      }
      if (server_count == 1) return error;
      const ErrorReason reason = GetErrorReason(error);
      if (reason == ErrorReason::kTargetNotAvailable) {
        servers_->ForgetInfo(server);
        absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", server.address(), ": ", std::string(error.message()));
        continue;
      }
      const bool another_may =
          reason == ErrorReason::kQueueFull || (route.ask_all && reason == ErrorReason::kFingerprintUnknown);
      if (!another_may) return error;
      if (refusal.ok()) refusal = std::move(error);
    }
    if (lost.ok()) return refusal.ok() ? NoServerFor(route, server_count, reasons) : refusal;
    if (count >= options_.max_attempts) return lost;
    const absl::Duration jittered = backoff * absl::Uniform(random, 0.5, 1.0);
    const absl::Duration wait = std::max(jittered, GetRetryDelay(lost));
    if (absl::Now() + wait >= deadline) return lost;
    absl::SleepFor(wait);
    backoff = std::min(backoff * 2, options_.max_backoff);
  }
}

absl::StatusOr<std::string> Client::Impl::FirstServer(const Route& route) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<PooledServerPtr> servers,
                            servers_->Order(route, absl::Now() + options_.deadline));
  return servers.front()->address();
}

Route Client::Impl::RouteOf(const CompileSpec& spec, Route::Need need, const Digest* request) {
  Route route;
  route.need = need;
  if (spec.graph == nullptr) {
    route.ask_all = true;
    if (spec.fingerprint.has_value()) route.key = StableHash(FingerprintBytes(*spec.fingerprint));
    return route;
  }
  if (spec.target.has_value()) route.target = spec.target->ToString();
  std::optional<Fingerprint> affinity;
  if (request != nullptr) affinity = affinities_.Find(*request);
  if (!affinity.has_value()) {
    // Sizes are left out: kernels of one graph serve several.
    FingerprintInputs inputs;
    inputs.canonical_graph = CanonicalBytes(Canonicalize(*spec.graph));
    inputs.target = spec.target.value_or(Target::Cpu());
    inputs.options = spec.options;
    affinity = ComputeFingerprint(inputs);
    if (request != nullptr) affinities_.Remember(*request, *affinity);
  }
  route.key = StableHash(FingerprintBytes(*affinity));
  return route;
}

Route Client::Impl::RouteOfTensors() const {
  Route route;
  route.need = Route::Need::kTensors;
  route.key = StableHash(absl::StrCat("owner:", options_.owner));
  return route;
}

absl::Status Client::Impl::CheckMessageSize(const google::protobuf::Message& request) const {
  const size_t size_bytes = request.ByteSizeLong();
  if (size_bytes <= static_cast<size_t>(options_.max_message_bytes)) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kResourceExhausted, ErrorReason::kLimitExceeded, "request",
      absl::StrCat("a request of ", size_bytes, " bytes is over the limit of ", options_.max_message_bytes));
}

std::string Client::Impl::FingerprintBytes(const Fingerprint& fingerprint) {
  return std::string(fingerprint.bytes.begin(), fingerprint.bytes.end());
}

Digest Client::Impl::RequestDigest(const v1::CompileSpec& spec, const std::string& input_key) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return ComputeDigest(absl::StrCat(bytes, input_key));
}

}  // namespace fuseline::client
