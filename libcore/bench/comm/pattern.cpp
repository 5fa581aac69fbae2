#include "libcore/bench/comm/pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "libcore/base/check.h"

namespace rw {
namespace {

// With more than 64 ranks each element gets the contributions of 64 of them.
constexpr int64_t kContributors = 64;

int64_t value(int64_t rank, int64_t ranks, int64_t element) {
  const int64_t groups = (ranks + kContributors - 1) / kContributors;
  if ((rank + element) % groups != 0) return 0;
  return (element * 7 + rank * 13 + element * rank % 5) % 9 - 4;
}

// Bits of a whole number of at most 11 bits as f16: exact.
uint16_t f16_bits(int64_t v) {
  if (v == 0) return 0;
  const auto magnitude = static_cast<uint64_t>(v < 0 ? -v : v);
  const int exponent = static_cast<int>(std::bit_width(magnitude)) - 1;
  return static_cast<uint16_t>((v < 0 ? 0x8000U : 0U) | static_cast<uint32_t>(exponent + 15) << 10 |
                               ((magnitude << (10 - exponent)) & 0x3ff));
}

void store(std::byte* to, int64_t v, DType t) {
  const auto put = [to](auto x) { std::memcpy(to, &x, sizeof x); };
  switch (t) {
    case DType::f32: return put(static_cast<float>(v));
    case DType::f64: return put(static_cast<double>(v));
    case DType::i64: return put(v);
    case DType::bf16: return put(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16));
    case DType::f16: return put(f16_bits(v));
    default: CHECK(false, "no test data of type %s", dtype_name(t));
  }
}

}  // namespace

Pattern::Pattern(const std::vector<int64_t>& values, DType t)
    : size_(dtype_bytes(t)), block_(static_cast<size_t>(2 * kPeriod * size_)) {
  for (int64_t i = 0; i < 2 * kPeriod; ++i)
    store(block_.data() + i * size_, values[static_cast<size_t>(i % kPeriod)], t);
}

Pattern Pattern::of_rank(int rank, int ranks, DType t) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < kPeriod; ++i) values.push_back(value(rank, ranks, i));
  return {values, t};
}

Pattern Pattern::of_sum(int ranks, DType t) {
  std::vector<int64_t> values(kPeriod);
  for (int64_t i = 0; i < kPeriod; ++i)
    for (int r = 0; r < ranks; ++r) values[static_cast<size_t>(i)] += value(r, ranks, i);
  return {values, t};
}

void Pattern::fill(void* data, int64_t begin, int64_t n) const {
  for (int64_t i = 0; i < n; i += kPeriod)
    std::memcpy(static_cast<std::byte*>(data) + i * size_, at(begin + i),
                static_cast<size_t>(std::min(kPeriod, n - i) * size_));
}

int64_t Pattern::count_wrong(const void* data, int64_t begin, int64_t n) const {
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; i += kPeriod) {
    const std::byte* found = static_cast<const std::byte*>(data) + i * size_;
    const int64_t m = std::min(kPeriod, n - i);
    if (std::memcmp(found, at(begin + i), static_cast<size_t>(m * size_)) == 0) continue;
    for (int64_t k = 0; k < m; ++k)
      wrong += std::memcmp(found + k * size_, at(begin + i + k), static_cast<size_t>(size_)) != 0;
  }
  return wrong;
}

}  // namespace rw
