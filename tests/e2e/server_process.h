// A fuseline-server of its own on a free loopback port, for tests through the real programs.
// Thread-safety: thread-compatible.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace fuseline::testing {

class ServerProcess {
 public:
  // Starts the program; `folder` takes its port file and log, `flags` are added to the command line. Check running().
  ServerProcess(const std::string& folder, const std::vector<std::string>& flags);
  // Kills the server if it still runs.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  bool running() const { return !address_.empty(); }
  const std::string& address() const { return address_; }  // "127.0.0.1:PORT"
  std::string log() const;
  pid_t pid() const { return pid_; }
  // Sends SIGTERM and waits for the end; the exit code, or -1 where a signal ended it.
  int Stop();
  // SIGKILL: the server has no time to do anything.
  void Kill();

 private:
  int Wait();

  pid_t pid_ = -1;
  std::string address_;
  std::string log_path_;
};

}  // namespace fuseline::testing
