#include "libcore/base/stream_copy.h"

#include <emmintrin.h>

#include <cstring>

namespace rw {

namespace {

constexpr int64_t kLine = 64, kPage = 4096;
constexpr int64_t kPages = 4;              // copied side by side: several pages' misses are then under way at a time
constexpr int64_t kWorthwhile = 32 << 10;  // below, the caches are faster

void copy_line(char* dst, const char* src) {
  const __m128i* from = reinterpret_cast<const __m128i*>(src);
  __m128i* to = reinterpret_cast<__m128i*>(dst);
  const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1), c = _mm_loadu_si128(from + 2),
                d = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, a);
  _mm_stream_si128(to + 1, b);
  _mm_stream_si128(to + 2, c);
  _mm_stream_si128(to + 3, d);
}

}  // namespace

void stream_copy(char* dst, const char* src, int64_t bytes) {
  const auto plain = [&](int64_t n) {
    std::memcpy(dst, src, static_cast<size_t>(n));
    dst += n, src += n, bytes -= n;
  };
  if (bytes < kWorthwhile) return plain(bytes);
  plain(-static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst)) & (kLine - 1));
  for (; bytes >= kPages * kPage; dst += kPages * kPage, src += kPages * kPage, bytes -= kPages * kPage) {
    for (int64_t at = 0; at < kPage; at += kLine) {
      for (int64_t page = 0; page < kPages; ++page) copy_line(dst + page * kPage + at, src + page * kPage + at);
    }
  }
  for (; bytes >= kLine; dst += kLine, src += kLine, bytes -= kLine) copy_line(dst, src);
  _mm_sfence();  // these stores are ordered with no others, not even with those of a mutex
  plain(bytes);
}

}  // namespace rw
