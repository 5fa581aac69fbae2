// What the simulator takes from the environment, and what it refuses there.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "kernels/cuda/error.h"
#include "kernels/simt/environment.h"

using namespace rw;

namespace {

constexpr const char* kName = "RANKWRIGHT_SIMT_TRIED";

template <class F>
auto told(const char* text, F&& f) {
  ::setenv(kName, text, 1);
  return f();
}
int64_t number(const char* text) {
  return told(text, [] { return simt::number_from(kName, -1, 7); });
}
int64_t bytes(const char* text) {
  return told(text, [] { return simt::bytes_from(kName, 7); });
}
int capability(const char* text) {
  return told(text, [] { return simt::capability_from(kName, 90); });
}
template <class F>
std::string refusal(F&& f, const char* text) {
  try {
    f(text);
  } catch (const cuda::CudaError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("simt: numbers of the environment, with the tools' units") {
  CHECK((number("") == 7 && number("0") == 0 && number("-1") == -1 && number("12") == 12));
  CHECK((bytes("") == 7 && bytes("1") == 1 && bytes("1000") == 1000));
  CHECK((bytes("3K") == 3 << 10 && bytes("5M") == 5 << 20 && bytes("8G") == int64_t{8} << 30));
  CHECK((bytes("2T") == int64_t{2} << 40 && bytes("3Ki") == 3 << 10 && bytes("5MiB") == 5 << 20));
  CHECK((capability("") == 90 && capability("80") == 80 && capability("100") == 100));
  ::unsetenv(kName);
  CHECK((simt::number_from(kName, 0, 7) == 7 && simt::bytes_from(kName, 7) == 7));
}

TEST_CASE("simt: what is no number in the environment is refused by name") {
  for (const char* text : {"x", "1M", "-2", "1.5", " 1", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(refusal(number, text) ==
          std::string(kName) + ": expected a whole number of -1 or more, found \"" + text + "\"");
  }
  for (const char* text : {"x", "M", "0", "-1", "1m", "1.5G", "1 G", "1MM", "1Mi ", "9000000T"}) {
    CAPTURE(text);
    CHECK(refusal(bytes, text) ==
          std::string(kName) +
              ": expected bytes of a device's memory, 1 or more, optionally with K, M, G or T (binary), like 512M, "
              "found \"" +
              text + "\"");
  }
  for (const char* text : {"x", "8.0", "8", "-80", "81", "80x"}) {
    CAPTURE(text);
    const std::string words = refusal(capability, text);
    CHECK(words.starts_with(std::string(kName) + ": expected a compute capability times ten (75, 80, 86"));
    CHECK(words.ends_with(std::string("found \"") + text + "\""));
  }
  ::unsetenv(kName);
}

TEST_CASE("simt: a capability's shared memory") {
  for (const auto& [known, kib] : {std::pair{80, 163}, {86, 99}, {89, 99}, {90, 227}, {100, 227}}) {
    CAPTURE(known);
    CHECK(simt::shared_bytes_of(known) == int64_t{kib} << 10);
  }
  CHECK(simt::shared_bytes_of(8) == 0);
}
