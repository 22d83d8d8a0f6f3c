#include "client/cpp/health.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/cpp/channel_credentials.h"
#include "client/cpp/error_details.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace fuseline::client {
namespace {

using google::protobuf::internal::WireFormatLite;

// Of grpc.health.v1: HealthCheckRequest.service, HealthCheckResponse.status and its value SERVING.
constexpr int kServiceField = 1;
constexpr int kStatusField = 1;
constexpr uint32_t kServing = 1;

grpc::ByteBuffer EncodeRequest(const std::string& service) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    if (!service.empty()) WireFormatLite::WriteString(kServiceField, service, &coded);
  }
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// The status of a HealthCheckResponse; 0 (UNKNOWN) where there is none to read.
uint32_t DecodeStatus(const grpc::ByteBuffer& response) {
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return 0;
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  google::protobuf::io::CodedInputStream coded(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  uint32_t status = 0;
  while (const uint32_t tag = coded.ReadTag()) {
    if (tag == WireFormatLite::MakeTag(kStatusField, WireFormatLite::WIRETYPE_VARINT)) {
      if (!coded.ReadVarint32(&status)) return 0;
    } else if (!WireFormatLite::SkipField(&coded, tag)) {
      return 0;
    }
  }
  return status;
}

}  // namespace

absl::Status CheckHealth(const std::string& address, const std::string& service, absl::Duration timeout,
                         const TlsOptions& tls) {
  if (address.empty()) return InvalidArgument(ErrorReason::kOptionInvalid, "address", "the server's address is empty");
  FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials, MakeChannelCredentials(tls));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  grpc::GenericStub stub(grpc::CreateCustomChannel(address, credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const grpc::ByteBuffer request = EncodeRequest(service);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&](grpc::Status s) {
                   status = std::move(s);
                   done.Notify();
                 });
  done.WaitForNotification();
  if (!status.ok())
    return DecodeError(static_cast<int>(status.error_code()), status.error_message(), status.error_details());
  if (DecodeStatus(response) == kServing) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "health",
                   absl::StrCat("the server at '", address, "' is up and takes no work: it drains"));
}

}  // namespace fuseline::client
