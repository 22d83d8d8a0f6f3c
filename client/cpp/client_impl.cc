// Tested by tests/unit/client/client_test.cc
#include "client/cpp/client_impl.h"

#include "absl/random/random.h"
#include "absl/time/clock.h"
#include "client/cpp/error_details.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace fuseline::client {

Client::Impl::Impl(const std::string& address, const ClientOptions& options)
    : options_(options), memory_(options.remember_fingerprints ? options.max_remembered : 0) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  // The retries are ours: they know RetryInfo.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // gRPC waits a second before it connects again; a server that restarts is back sooner.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // This one is also how long an attempt to connect may take: a distant or busy server needs more than the backoff.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  compile_ = v1::CompileService::NewStub(channel_);
  execute_ = v1::ExecuteService::NewStub(channel_);
  admin_ = v1::AdminService::NewStub(channel_);
}

absl::Status Client::Impl::WithRetries(absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt) {
  const absl::Time deadline = absl::Now() + options_.deadline;
  absl::Duration backoff = options_.initial_backoff;
  absl::BitGen random;
  for (int count = 1;; ++count) {
    grpc::ClientContext context;
    if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
    if (!options_.owner.empty()) context.AddMetadata("fuseline-owner", options_.owner);
    const grpc::Status status = attempt(context);
    if (status.ok()) return absl::OkStatus();
    absl::Status error =
        DecodeError(static_cast<int>(status.error_code()), status.error_message(), status.error_details());
    if (error.code() != absl::StatusCode::kUnavailable || count >= options_.max_attempts) return error;
    const absl::Duration jittered = backoff * absl::Uniform(random, 0.5, 1.0);
    const absl::Duration wait = std::max(jittered, GetRetryDelay(error));
    if (absl::Now() + wait >= deadline) return error;
    absl::SleepFor(wait);
    backoff = std::min(backoff * 2, options_.max_backoff);
  }
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
