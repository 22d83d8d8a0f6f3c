// Runs a program and collects what it printed: for tests of the command line.
// Thread-safety: RunProgram may be called from several threads.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace fuseline::testing {

struct ProgramResult {
  int exit_code = -1;  // -1: ended by a signal, or not started
  std::string out;
  std::string err;
};

// `argv[0]`: the program's path. `environment`: set besides this process's own.
ProgramResult RunProgram(const std::vector<std::string>& argv, const std::string& input = "",
                         const std::map<std::string, std::string>& environment = {});

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }
  // Returns the file's path.
  std::string Write(const std::string& name, const std::string& bytes) const;
  std::string Read(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace fuseline::testing
