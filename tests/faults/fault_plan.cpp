#include "tests/faults/fault_plan.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

namespace faults {

namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const std::string& why) {
  const std::string text = "RANKWRIGHT_FAULT: " + why + "\n";
  if (::syscall(SYS_write, 2, text.data(), text.size()) < 0) ::_exit(4);
  ::_exit(4);
}

const std::map<std::string, Action> kActions = {
    {"eio", Action::eio},           {"enospc", Action::enospc}, {"short", Action::short_write},
    {"flip", Action::flip},         {"kill", Action::kill},     {"kill-half", Action::kill_half},
    {"kill-job", Action::kill_job}, {"slow", Action::slow},     {"list", Action::list}};

}  // namespace

FaultPlan::FaultPlan()
    : dir_(setting("RANKWRIGHT_FAULT_DIR")),
      record_(setting("RANKWRIGHT_FAULT_RECORD")),
      fired_(setting("RANKWRIGHT_FAULT_FIRED")) {
  bool here = true;
  std::istringstream words(setting("RANKWRIGHT_FAULT"));
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) refuse("expected KEY=VALUE, found " + word);
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "action") {
      const auto found = kActions.find(action_name_ = value);
      if (found == kActions.end()) refuse("no such action: " + value);
      action_ = found->second;
    } else if (key == "op") {
      op_ = value;
      if (op_ != "any" && std::find(std::begin(kOpNames), std::end(kOpNames), op_) == std::end(kOpNames))
        refuse("no such op: " + value);
    } else if (key == "at") {
      at_ = std::atoll(value.c_str());
    } else if (key == "ms") {
      ms_ = std::atoll(value.c_str());
    } else if (key == "bit") {
      bit_ = std::atoll(value.c_str());
    } else if (key == "sticky") {
      sticky_ = value == "1";
    } else if (key == "path") {
      path_part_ = value;
    } else if (key == "rank") {
      here = setting("OMPI_COMM_WORLD_RANK") == value;
    } else {
      refuse("no such key: " + key);
    }
  }
  if (!here) action_ = Action::none;
  if (action_ == Action::slow || action_ == Action::short_write || action_ == Action::list) sticky_ = true;
}

bool FaultPlan::watches(const std::string& path) const {
  return !dir_.empty() && path.starts_with(dir_) && (path.size() == dir_.size() || path[dir_.size()] == '/') &&
         path.find(" (deleted)") == std::string::npos;
}

void FaultPlan::tell(Op op, const std::string& path) const {
  if (fired_.empty()) return;
  const std::string line = action_name_ + " " + op_name(op) + " " + path + "\n";
  const long fd = ::syscall(SYS_openat, AT_FDCWD, fired_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0 || ::syscall(SYS_write, fd, line.data(), line.size()) < 0) refuse("cannot write " + fired_);
  ::syscall(SYS_close, fd);
}

void FaultPlan::die() {
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

Action FaultPlan::next(Op op, const std::string& path, int64_t bytes) {
  if (action_ == Action::none || (op_ != "any" && op_ != op_name(op))) return Action::none;
  if (!path_part_.empty() && path.find(path_part_) == std::string::npos) return Action::none;
  const bool of_writes = action_ == Action::flip || action_ == Action::short_write;
  if (of_writes && bytes < 2) return Action::none;
  const int64_t n = ++n_matching_;
  if (sticky_ ? n < at_ : n != at_) return Action::none;
  tell(op, path);
  if (action_ == Action::kill || (action_ == Action::kill_half && op != Op::write)) die();
  if (action_ == Action::kill_job) {
    ::kill(::getppid(), SIGKILL);
    die();
  }
  if (action_ == Action::slow && (op == Op::write || op == Op::sync)) {
    const int64_t ms = op == Op::sync ? ms_ : std::max<int64_t>(1, ms_ * bytes >> 20);
    const timespec pause{ms / 1000, ms % 1000 * 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return action_;
}

}  // namespace faults
