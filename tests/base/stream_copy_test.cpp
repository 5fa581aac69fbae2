#include "libcore/base/stream_copy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace rw;

TEST_CASE("a streaming copy copies exactly these bytes, whatever the alignment") {
  std::mt19937 random(1);
  std::vector<char> src(200'000), dst(200'000);
  for (char& c : src) c = static_cast<char>(random());
  for (const int64_t bytes : {0, 1, 63, 64, 4095, 32767, 32768, 32769, 16384 * 3, 65537, 131'071, 199'000}) {
    for (const int64_t from : {0, 1, 17, 64}) {
      for (const int64_t to : {0, 3, 16, 63}) {
        std::fill(dst.begin(), dst.end(), 'c');
        stream_copy(dst.data() + to, src.data() + from, bytes);
        std::vector<char> expected(dst.size(), 'c');
        std::copy_n(src.begin() + from, bytes, expected.begin() + to);
        REQUIRE(dst == expected);
      }
    }
  }
}
