// How many threads a test's OpenMP team may have. TSan does not see OpenMP's barriers, so a team of several looks like
// races to it.
#pragma once

namespace rw {

#ifdef __SANITIZE_THREAD__
constexpr int team(int) { return 1; }
#else
constexpr int team(int threads) { return threads; }
#endif

}  // namespace rw
