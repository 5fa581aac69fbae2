// CHECK(cond, "printf format", ...): for what we did wrong. Always on; throws CheckFailed, which no one but main
// catches. Light on purpose: kernels include it.
#pragma once

namespace rw {
[[noreturn]] void check_failed(const char* file, int line, const char* expr, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
}

#define CHECK_AT_(cond, ...)                                      \
  do {                                                            \
    if (!(cond)) [[unlikely]]                                     \
      ::rw::check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__); \
  } while (0)
#define CHECK(cond, ...) CHECK_AT_(cond, "" __VA_ARGS__)
