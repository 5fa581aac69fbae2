// What a device says when it refuses or fails.
#pragma once
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "libcore/base/error.h"

namespace rw::test {

// The words of the Error of that kind that f throws; "" when it throws none.
inline std::string failure(const std::function<void()>& f, ErrorKind kind = ErrorKind::runtime) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    return e.what();
  }
  return "";
}
inline bool holds(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  return text.find(part) != std::string::npos;
}

}  // namespace rw::test
