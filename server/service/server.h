// The gRPC server: listens, serves the three services with health and reflection, and drains.
// Pipeline: Engine, ServerOptions -> Server.
// Ownership: owns the services and their threads, not the engine. Thread-safety: thread-safe.
// Tested by tests/unit/service/server_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/engine.h"
#include "server/service/call_log.h"
#include "server/service/tls_credentials.h"

namespace fuseline::service {

struct ServerOptions {
  std::string listen = "127.0.0.1:50061";   // HOST:PORT (port 0: a free one), or unix:PATH
  int64_t max_message_bytes = 512ll << 20;  // in either direction; 1 MiB to 2 GiB - 1
  int compile_workers = 0;                  // threads for compilations, which mostly wait for builds; 0: 64
  int execute_workers = 0;                  // threads for runs; 0: four for each core, at least 16
  int max_compile_queue = 1024;             // calls that may wait for those
  int max_execute_queue = 1024;
  int max_streams = 256;                             // streaming calls at a time
  absl::Duration stream_idle = absl::Seconds(60);    // how long a client may keep its stream waiting
  int64_t max_inflight_bytes = int64_t{4096} << 20;  // of the requests that wait and run
  int max_calls_per_connection = 2048;               // more wait in the client
  TlsFiles tls;                                      // empty: plain text
  bool accepts_imports = true;                       // false: ImportCache is refused
  std::string metrics_listen;                        // HOST:PORT for /metrics over HTTP; empty: none
  std::string version = "unknown";                   // what GetServerInfo says
  CallLog log;                                       // called once for each call; may be empty
};

class Server {
 public:
  // Serving when it returns. Errors: INVALID_ARGUMENT (kOptionInvalid); UNAVAILABLE (kInputOutput) where it can't
  // listen; those of MakeServerCredentials.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Engine& engine, ServerOptions options);
  // Stops at once if it was not drained.
  ~Server();

  // The port that it listens on; 0 for a Unix socket.
  int port() const;
  // Of the metrics; 0 where there are none.
  int metrics_port() const;
  // "127.0.0.1:50061", "unix:/run/fuseline.sock": what a client connects to.
  std::string address() const;

  // Blocks: turns the health to NOT_SERVING, answers new work with UNAVAILABLE, waits up to `grace` for what runs and
  // waits, cancels the rest, and closes. True where everything was done in time. Further calls do nothing and answer
  // true.
  bool Drain(absl::Duration grace);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fuseline::service
