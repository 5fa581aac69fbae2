// Sums of bf16 and f16 against an own decoding and rounding of their bits.
#include <cmath>
#include <cstring>

#include "tests/comm/check_tools.h"
#include "tests/comm/comm_checks.h"

namespace rw::checks {
namespace {

struct Format {
  DType t;
  int mantissa_bits, exponent_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kFormats[] = {{DType::bf16, 7, 8}, {DType::f16, 10, 5}};

double decode(uint16_t bits, const Format& f) {
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int exponent = (bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << f.exponent_bits) - 1) return mantissa ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
}

// The nearest value of the format, ties to even.
double nearest(double x, const Format& f) {
  if (x == 0) return x;
  const int exponent = std::max(std::ilogb(x), 1 - f.bias());
  const double step = std::ldexp(1.0, exponent - f.mantissa_bits);
  const double rounded = std::nearbyint(x / step) * step;
  return std::abs(rounded) >= std::ldexp(1.0, f.bias() + 1) ? std::copysign(HUGE_VAL, x) : rounded;
}

// Any finite bits; of f16 also ones whose sum overflows.
uint16_t bits_of(int rank, int64_t i, const Format& f) {
  uint64_t h = (static_cast<uint64_t>(i) * 13 + static_cast<uint64_t>(rank) + 7) * 0x9e3779b97f4a7c15u;
  h ^= h >> 31;
  const auto mantissa = static_cast<uint16_t>(h % (1u << f.mantissa_bits));
  // Exponents near each other, so that the roundings differ; every seventh element is subnormal.
  const int top = f.t == DType::f16 && i % 11 == 0 ? 30 : f.bias() + 3;
  const int exponent = i % 7 == 0 ? 0 : top - static_cast<int>((h >> 20) % 6);
  return static_cast<uint16_t>((h >> 40 & 1) << 15 | static_cast<unsigned>(exponent) << f.mantissa_bits | mantissa);
}

}  // namespace

void sums_of_16_bits(Comm& comm, const Topology& topology) {
  const int ranks = comm.size(), me = comm.rank(),
            block = topology.ranks_per_node == 0 ? ranks : topology.ranks_per_node;
  for (const Format& f : kFormats)
    for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{17}, int64_t{1001}, int64_t{70001}}) {
      std::vector<double> want;
      int64_t inexact = 0;
      for (int64_t i = 0; i < n; ++i) {
        float sum = 0;
        for (int begin = 0; begin < ranks; begin += block) {
          float part = static_cast<float>(decode(bits_of(begin, i, f), f));
          for (int r = begin + 1; r < std::min(ranks, begin + block); ++r)
            part += static_cast<float>(decode(bits_of(r, i, f), f));
          sum = begin == 0 ? part : sum + part;
        }
        want.push_back(nearest(sum, f));
        inexact += want.back() != sum;
      }
      expect(ranks == 1 || n < 100 || inexact > n / 10, "only {} of {} sums are rounded", inexact, n);
      for (bool shared : {false, true})
        for (int way = 0; way < 2; ++way) {
          Guarded<uint16_t> x(comm, n, shared);
          for (int64_t i = 0; i < n; ++i) x[i] = bits_of(me, i, f);
          const std::vector<int64_t> cuts = even_cuts(n, ranks);
          if (way == 0) comm.all_reduce(x.data(), n, f.t, ReduceOp::sum);
          else comm.reduce_scatter(x.data(), cuts, f.t);
          for (int64_t i = way == 0 ? 0 : cuts[static_cast<size_t>(me)];
               i < (way == 0 ? n : cuts[static_cast<size_t>(me) + 1]); ++i)
            expect(decode(x[i], f) == want[static_cast<size_t>(i)],
                   "sum of {} {} (shared: {}, way {}): element {} is {}, not {}", n, dtype_name(f.t), shared, way, i,
                   decode(x[i], f), want[static_cast<size_t>(i)]);
          x.check("sum of 16 bits");
          comm.barrier();
        }
    }
}

}  // namespace rw::checks
