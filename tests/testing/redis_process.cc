#include "tests/testing/redis_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "tests/testing/program_runner.h"

namespace fuseline::testing {
namespace {

constexpr char kServer[] = "/usr/bin/redis-server";
constexpr char kCli[] = "/usr/bin/redis-cli";

bool Accepts(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool accepts = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return accepts;
}

}  // namespace

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  int port = 0;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port = ntohs(address.sin_port);
  }
  close(fd);
  return port;
}

bool RedisProcess::IsInstalled() { return access(kServer, X_OK) == 0 && access(kCli, X_OK) == 0; }

RedisProcess::RedisProcess(std::vector<std::string> flags, int port) : flags_(std::move(flags)), port_(port) {
  std::string pattern = (std::filesystem::temp_directory_path() / "fuseline_redis_XXXXXX").string();
  folder_ = mkdtemp(pattern.data()) == nullptr ? "" : pattern;
  if (port_ != 0) {
    Start();
    return;
  }
  // Another program may take the port before the server does.
  for (int tries = 0; tries < 5 && !running(); ++tries) {
    port_ = FreePort();
    Start();
    const std::string own = "process_id:" + std::to_string(pid_) + "\r";
    if (running() && Cli({"INFO", "server"}).find(own) == std::string::npos) Kill();
  }
}

RedisProcess::~RedisProcess() {
  Kill();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void RedisProcess::Start() {
  const std::string port = std::to_string(port_);
  std::vector<std::string> arguments = {kServer};
  // A Sentinel writes its configuration, and wants it first.
  size_t first = 0;
  if (!flags_.empty() && flags_[0].rfind('-', 0) != 0) arguments.push_back(flags_[first++]);
  for (const char* flag : {"--bind", "127.0.0.1", "--daemonize", "no"}) arguments.push_back(flag);
  if (first == 0) arguments.insert(arguments.end(), {"--save", "", "--appendonly", "no", "--dir", folder_});
  const std::vector<std::string> rest(flags_.begin() + static_cast<std::ptrdiff_t>(first), flags_.end());
  bool has_port = false;
  for (const std::string& flag : rest) has_port = has_port || flag == "--port";
  if (!has_port) arguments.insert(arguments.end(), {"--port", port});
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string log_path = folder_ + "/redis.log";
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  for (int i = 0; i < 2000 && !Accepts(port_); ++i) {
    if (int status = 0; waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::string RedisProcess::log() const {
  std::ostringstream text;
  text << std::ifstream(folder_ + "/redis.log").rdbuf();
  return text.str();
}

void RedisProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
}

void RedisProcess::Pause() { kill(pid_, SIGSTOP); }
void RedisProcess::Resume() { kill(pid_, SIGCONT); }

std::string RedisProcess::Cli(const std::vector<std::string>& command, const std::vector<std::string>& flags) const {
  std::vector<std::string> argv = {kCli, "-h", "127.0.0.1", "-p", std::to_string(port_)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  argv.insert(argv.end(), command.begin(), command.end());
  std::string out = RunProgram(argv).out;
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace fuseline::testing
