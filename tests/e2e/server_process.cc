#include "tests/e2e/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

namespace fuseline::testing {

ServerProcess::ServerProcess(const std::string& folder, const std::vector<std::string>& flags)
    : log_path_(folder + "/server.log") {
  const std::string port_path = folder + "/port";
  std::remove(port_path.c_str());
  std::vector<std::string> arguments = {FUSELINE_SERVER_PROGRAM, "--listen", "127.0.0.1:0", "--port_file", port_path};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    // Dies with the test, however that ends.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = open(log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  for (int i = 0; i < 1200 && address_.empty(); ++i) {
    int port = 0;
    if (std::ifstream(port_path) >> port) {
      address_ = "127.0.0.1:" + std::to_string(port);
    } else if (int status = 0; waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
}

ServerProcess::~ServerProcess() { Kill(); }

void ServerProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  Wait();
}

std::string ServerProcess::log() const {
  std::ostringstream text;
  text << std::ifstream(log_path_).rdbuf();
  return text.str();
}

int ServerProcess::Stop() {
  if (pid_ <= 0) return -1;
  kill(pid_, SIGTERM);
  return Wait();
}

int ServerProcess::Wait() {
  int status = 0;
  const bool ended = waitpid(pid_, &status, 0) == pid_;
  pid_ = -1;
  address_.clear();
  return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace fuseline::testing
