// A Redis server of its own on a free loopback port, for tests. It keeps nothing on disk and ends with the test.
// Thread-safety: thread-compatible.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace fuseline::testing {

class RedisProcess {
 public:
  // False: there is no redis-server here (Debian package redis-server), and the test is to be skipped.
  static bool IsInstalled();

  // Started with `flags` besides; answers when the constructor returns. Check running().
  explicit RedisProcess(std::vector<std::string> flags = {}, int port = 0);
  ~RedisProcess();
  RedisProcess(const RedisProcess&) = delete;
  RedisProcess& operator=(const RedisProcess&) = delete;

  bool running() const { return pid_ > 0; }
  int port() const { return port_; }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  std::string folder() const { return folder_; }
  std::string log() const;
  void Kill();   // SIGKILL
  void Start();  // again on the same port, empty
  void Pause();  // it is there, and answers nothing
  void Resume();
  // What redis-cli prints for a command, without the line's end; arguments may hold any bytes but zeros.
  std::string Cli(const std::vector<std::string>& command, const std::vector<std::string>& flags = {}) const;

 private:
  const std::vector<std::string> flags_;
  std::string folder_;
  int port_ = 0;
  pid_t pid_ = -1;
};

// A port of 127.0.0.1 that nobody has at the moment.
int FreePort();

}  // namespace fuseline::testing
