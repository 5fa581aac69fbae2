// Errors: what the outside did (a file, a peer, a flag, memory). The message says what was expected, what was found,
// where, and what to do; rank and step are added by whoever prints it.
#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rw {

enum class ErrorKind {
  usage,        // wrong flag or config               exit 2
  input,        // wrong input file or data           exit 2
  runtime,      // failed while running               exit 1
  verdict,      // a check said no                    exit 3
  interrupted,  // stopped after a clean save         exit 75
};

int exit_code(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

class CheckFailed : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// fail(ErrorKind::input, "{}: expected {}, found {}", ...) formats and throws Error.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// The nearest of `known` to `found` by edit distance, for "did you mean"; empty when nothing is near.
std::string nearest(const std::string& found, const std::vector<std::string>& known);

}  // namespace rw
