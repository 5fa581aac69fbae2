#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "libcore/base/error.h"
#include "tools/cli.h"

namespace rw {

namespace {

// A closed standard stream would give its number to the next file that is opened, and messages would go into that file.
void hold_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF && ::open("/dev/null", O_RDWR) != fd) std::_Exit(1);
}

}  // namespace

int run_tool(const std::string& name, const std::function<int()>& body) {
  hold_standard_streams();
  try {
    const int code = body();
    // A script must not take an empty file for a result.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      fail(ErrorKind::runtime, "standard output cannot be written: {}", std::strerror(errno));
    return code;
  } catch (const std::system_error& e) {
    std::fprintf(stderr, "%s: error: output cannot be written: %s\n", name.c_str(), e.what());
    return exit_code(ErrorKind::runtime);
  } catch (const Error& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: error: %s\n", name.c_str(), e.what());
    return exit_code(e.kind());
  } catch (const std::exception& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: internal error, please report it: %s\n", name.c_str(), e.what());
    return exit_code(ErrorKind::runtime);
  }
}

}  // namespace rw
