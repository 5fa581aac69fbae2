// Rounding weights to 8 and 4 bits, and back.
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quant_lines.h"
#include "kernels/cpu/round_to_int.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

// A scale in bf16, not below x.
bf16 round_up(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  return {static_cast<uint16_t>(x == x ? (u + 0xffffu) >> 16 : 0x7fc0u)};
}
float inverse(float x) { return x > 0 ? 1 / x : 0; }

// One column's elements of a block, with zeros behind its end.
struct Column {
  alignas(64) float x[kQuantMaxBlock];
  alignas(64) int32_t q[kQuantMaxBlock];  // biased
};

bf16 quantise_int8(Column& c, int64_t n) {
  const bf16 scale = round_up(largest_magnitude(c.x, n) / 127);
  const vf by = splat(inverse(to_f32(scale)));
  for (int64_t i = 0; i < n; i += kW) {
    const vi q = round_to_int(load(c.x + i) * by) + 128;
    __builtin_memcpy(c.q + i, &q, sizeof q);
  }
  return scale;
}

RW_INLINE vf nearest_int4(vf x) {
  const vf y = __builtin_convertvector(round_to_int(vmax(splat(-9), vmin(splat(9), x))), vf);
  return vmax(splat(-8), vmin(splat(7), y));
}

// Squared error of n elements on the scale s.
float error_of(const float* x, int64_t n, float s) {
  const float by = inverse(s);
  vf sum{};
  for (int64_t i = 0; i < n; i += kW) {
    const vf v = load(x + i), d = v - nearest_int4(v * by) * s;
    sum += d * d;
  }
  return hsum(sum);
}

// The scale in f32 that serves a group best, of some near the one that just holds the largest element.
float best_scale(const float* x, int64_t n) {
  const float max = largest_magnitude(x, n);
  float best = max / 8, least = error_of(x, n, best);
  for (int64_t i = 0; i < 12; ++i) {
    const float s = max / (6.5f + 0.25f * static_cast<float>(i)), e = error_of(x, n, s);
    if (e < least) best = s, least = e;
  }
  return best;
}

struct Int4Scales {
  bf16 shared;
  int32_t own[4];
  float error;
};

// own scales for a given shared one.
Int4Scales own_for(const float* x, int64_t group, const float (&wanted)[4], bf16 shared) {
  Int4Scales s{shared, {}, 0};
  const float unit = to_f32(shared);
  for (int64_t g = 0; g < 4; ++g) {
    const int32_t near = static_cast<int32_t>(wanted[g] * inverse(unit) + 0.5f);
    float least = __builtin_inff();
    for (int32_t own = near > 1 ? near - 1 : 0; own <= near + 1 && own <= 15; ++own) {
      const float e = error_of(x + g * group, group, unit * static_cast<float>(own));
      if (e < least) s.own[g] = own, least = e;
    }
    s.error += least;
  }
  return s;
}

Int4Scales quantise_int4(Column& c, int64_t group) {
  float wanted[4], largest = 0;
  for (int64_t g = 0; g < 4; ++g) {
    wanted[g] = best_scale(c.x + g * group, group);
    largest = wanted[g] > largest || wanted[g] != wanted[g] ? wanted[g] : largest;
  }
  if (largest - largest != 0) return {bf16{0x7fc0}, {1, 1, 1, 1}, 0};
  Int4Scales best = own_for(c.x, group, wanted, round_up(largest / 15));
  for (float top = 14; top >= 12; --top) {
    const Int4Scales s = own_for(c.x, group, wanted, round_up(largest / top));
    if (s.error < best.error) best = s;
  }
  for (int64_t g = 0; g < 4; ++g) {
    const vf by = splat(inverse(to_f32(best.shared) * static_cast<float>(best.own[g])));
    for (int64_t i = g * group; i < (g + 1) * group; i += kW) {
      const vi q = __builtin_convertvector(nearest_int4(load(c.x + i) * by), vi) + 8;
      __builtin_memcpy(c.q + i, &q, sizeof q);
    }
  }
  return best;
}

// Four neighbours in k, a byte each.
RW_INLINE uint32_t word(const int32_t* q) {
  return static_cast<uint32_t>(q[0]) | static_cast<uint32_t>(q[1]) << 8 | static_cast<uint32_t>(q[2]) << 16 |
         static_cast<uint32_t>(q[3]) << 24;
}

void pack_column(const QuantLayout& l, char* block, int64_t steps, int64_t column, Column& c) {
  const int64_t half = column / 16, lane = column % 16, n = steps * kQuantStep;
  char* lines = block + l.head + half * steps * l.half_step + 4 * lane;
  bf16 scale;
  if (l.bits == QuantBits::int8) {
    scale = quantise_int8(c, n);
    for (int64_t k = 0; k < n; k += 4, lines += 64) {
      const uint32_t w = word(c.q + k);
      __builtin_memcpy(lines, &w, 4);
    }
  } else {
    const Int4Scales s = quantise_int4(c, l.group);
    scale = s.shared;
    for (int64_t g = 0; g < 4; ++g) {
      char& both = block[64 + 16 * g + lane];
      both = static_cast<char>(half == 0 ? s.own[g] : both | s.own[g] << 4);
    }
    for (int64_t k = 0; k < n; k += 8, lines += 64) {
      const uint32_t w = word(c.q + k) | word(c.q + k + 4) << 4;
      __builtin_memcpy(lines, &w, 4);
    }
  }
  __builtin_memcpy(block + 2 * column, &scale, 2);
}

void check_group(QuantBits bits, int64_t group) {
  const bool wide = bits == QuantBits::int8;
  CHECK(group > 0 && (wide ? group % 64 == 0 && group <= 512 : group % 32 == 0 && group <= 128),
        "groups of %lld weights of %s bits; expected a multiple of %s", static_cast<long long>(group), wide ? "8" : "4",
        wide ? "64 up to 512" : "32 up to 128");
}

}  // namespace

void quant_pack(const QuantPack& p, Stream stream) {
  check_group(p.bits, p.group);
  const QuantLayout l(p.bits, p.group, p.n, p.k);
  const int64_t ld = p.ldb ? p.ldb : p.k;
  parallel_ranges(stream.threads, l.panels, 1, [&](int64_t begin, int64_t end) {
    Column c{};
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t b = 0; b < l.blocks; ++b) {
        char* block = static_cast<char*>(p.packed) + panel * l.panel + l.offset(b);
        const int64_t first = b * l.block, left = p.k - first, n = left < 0 ? 0 : left < l.block ? left : l.block;
        for (int64_t column = 0; column < kQuantColumns; ++column) {
          const int64_t row = panel * kQuantColumns + column, have = row < p.n ? n : 0;
          const float* x = p.b + (row < p.n ? row * ld + first : 0);
          for (int64_t i = 0; i < l.block; ++i) c.x[i] = i < have ? x[i] : 0;
          pack_column(l, block, l.steps(b), column, c);
        }
      }
    }
  });
}

void quant_unpack(const QuantUnpack& p, Stream stream) {
  check_group(p.bits, p.group);
  const QuantLayout l(p.bits, p.group, p.n, p.k);
  const int64_t ld = p.ldb ? p.ldb : p.k;
  parallel_ranges(stream.threads, l.panels, 1, [&](int64_t begin, int64_t end) {
    alignas(64) char wide[kQuantMaxBlock * 16];
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t b = 0; b < l.blocks; ++b) {
        const char* block = static_cast<const char*>(p.packed) + panel * l.panel + l.offset(b);
        for (int64_t half = 0; half < 2; ++half) {
          const char* lines = block + l.head + half * l.steps(b) * l.half_step;
          if (l.bits == QuantBits::int4) {
            widen_lines(wide, lines, own_scales(block, half), l.group, l.steps(b));
            lines = wide;
          }
          for (int64_t c = 0; c < 16; ++c) {
            const int64_t row = panel * kQuantColumns + 16 * half + c;
            if (row >= p.n) break;
            bf16 scale;
            __builtin_memcpy(&scale, block + 2 * (16 * half + c), 2);
            for (int64_t i = 0; i < l.steps(b) * kQuantStep && b * l.block + i < p.k; ++i) {
              const int32_t q = static_cast<uint8_t>(lines[i / 4 * 64 + 4 * c + i % 4]) - 128;
              p.b[row * ld + b * l.block + i] = static_cast<float>(q) * to_f32(scale);
            }
          }
        }
      }
    }
  });
}

}  // namespace rw::RW_ISA
