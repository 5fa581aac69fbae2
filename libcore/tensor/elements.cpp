#include "libcore/tensor/elements.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {

int64_t checked_bytes(const Shape& shape, DType t) {
  int64_t bytes = dtype_bytes(t);
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  }
  return bytes;
}

bool dtype_from_name(const char* name, DType& t) {
  for (const DType known :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::i32, DType::u16, DType::u8}) {
    if (std::strcmp(name, dtype_name(known)) == 0) {
      t = known;
      return true;
    }
  }
  return false;
}

bool can_read_as(DType stored, DType wanted) {
  if (stored == wanted) return true;
  return wanted == DType::f32 &&
         (stored == DType::f64 || stored == DType::bf16 || stored == DType::f16 || stored == DType::i64);
}

namespace {

float from_bf16(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

// Subnormals go through an integer product, which is right also where the processor flushes f32 subnormals to zero.
float from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 31, mantissa = h & 1023;
  const float small = static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24f;
  const uint32_t normal = ((exponent + 112) << 23) | (mantissa << 13);
  const uint32_t special = 0x7f800000u | (mantissa << 13);
  const uint32_t bits = exponent == 0 ? std::bit_cast<uint32_t>(small) : exponent == 31 ? special : normal;
  return std::bit_cast<float>(sign | bits);
}

uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
}

uint16_t to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000, a = bits & 0x7fffffff;
  uint32_t h;
  if (a > 0x7f800000) {
    h = 0x7e00 | ((a >> 13) & 1023);
  } else if (a >= 0x477ff000) {  // 65520 and above round to infinity
    h = 0x7c00;
  } else if (a < 0x38800000) {  // below 2^-14: a multiple of 2^-24; adding 2^23 rounds it to an integer
    h = std::bit_cast<uint32_t>(std::bit_cast<float>(a) * 0x1p24f + 0x1p23f) - 0x4b000000;
  } else {
    h = (a + 0xfff + ((a >> 13) & 1) - 0x38000000) >> 13;
  }
  return static_cast<uint16_t>(sign | h);
}

template <typename From, typename To, typename F>
void each(const void* src, void* dst, int64_t n, F convert) {
  const char* in = static_cast<const char*>(src);
  char* out = static_cast<char*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    From from;
    std::memcpy(&from, in + i * static_cast<int64_t>(sizeof from), sizeof from);
    const To to = convert(from);
    std::memcpy(out + i * static_cast<int64_t>(sizeof to), &to, sizeof to);
  }
}

}  // namespace

void convert_elements(const void* src, DType src_type, void* dst, DType dst_type, int64_t n) {
  if (n == 0) return;
  if (src_type == dst_type) {
    std::memcpy(dst, src, static_cast<size_t>(n * dtype_bytes(src_type)));
  } else if (dst_type == DType::f32 && src_type == DType::bf16) {
    each<uint16_t, float>(src, dst, n, from_bf16);
  } else if (dst_type == DType::f32 && src_type == DType::f16) {
    each<uint16_t, float>(src, dst, n, from_f16);
  } else if (dst_type == DType::f32 && src_type == DType::f64) {
    each<double, float>(src, dst, n, [](double x) { return static_cast<float>(x); });
  } else if (dst_type == DType::f32 && src_type == DType::i64) {
    each<int64_t, float>(src, dst, n, [](int64_t x) { return static_cast<float>(x); });
  } else if (src_type == DType::f32 && dst_type == DType::bf16) {
    each<float, uint16_t>(src, dst, n, to_bf16);
  } else if (src_type == DType::f32 && dst_type == DType::f16) {
    each<float, uint16_t>(src, dst, n, to_f16);
  } else {
    CHECK(false, "no conversion from %s to %s", dtype_name(src_type), dtype_name(dst_type));
  }
}

void check_fits_f16(const float* values, int64_t n, const std::string& name, const std::string& where) {
  constexpr float kLargest = 65504.0f;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isfinite(values[i]) && std::abs(values[i]) > kLargest) {
      fail(ErrorKind::input, "{}: tensor {}: expected values within f16's {}, found {}: export as bf16 or f32", where,
           name, kLargest, values[i]);
    }
  }
}

void copy_part(const Box& part, const BoxBytes& src, void* dst, DType dst_type, const Box& dst_box) {
  const char* in = static_cast<const char*>(src.data);
  char* out = static_cast<char*>(dst);
  const int64_t in_bytes = dtype_bytes(src.dtype), out_bytes = dtype_bytes(dst_type);
  for_each_run(part, src.box, dst_box, [&](int64_t from, int64_t to, int64_t n) {
    convert_elements(in + from * in_bytes, src.dtype, out + to * out_bytes, dst_type, n);
  });
}

void let_go(const Box& part, const BoxBytes& mapped) {
  constexpr uintptr_t kLeast = uintptr_t{128} << 10;
  if (part.size() == 0) return;
  int64_t first = 0, last = 0;  // elements of the mapped box
  for (size_t d = 0; d < part.offset.size(); ++d) {
    const int64_t at = part.offset[d] - mapped.box.offset[d];
    first = first * mapped.box.extent[d] + at;
    last = last * mapped.box.extent[d] + at + part.extent[d] - 1;
  }
  const auto width = static_cast<uintptr_t>(dtype_bytes(mapped.dtype));
  const auto data = reinterpret_cast<uintptr_t>(mapped.data), page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (data + static_cast<uintptr_t>(first) * width) / page * page;
  const uintptr_t end = data + static_cast<uintptr_t>(last + 1) * width;
  if (end - begin < kLeast) return;
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // where it fails nothing is lost but memory
}

namespace {
template <typename T>
void transpose_as(const void* src, int64_t rows, int64_t cols, void* dst) {
  constexpr int64_t kTile = 32;  // a tile of source rows and one of destination rows stay in L1
  const T* in = static_cast<const T*>(src);
  T* out = static_cast<T*>(dst);
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      const int64_t r1 = std::min(rows, r0 + kTile), c1 = std::min(cols, c0 + kTile);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) out[c * rows + r] = in[r * cols + c];
      }
    }
  }
}
}  // namespace

void transpose_elements(const void* src, int64_t rows, int64_t cols, int64_t bytes, void* dst) {
  switch (bytes) {
    case 2: return transpose_as<uint16_t>(src, rows, cols, dst);
    case 4: return transpose_as<uint32_t>(src, rows, cols, dst);
    case 8: return transpose_as<uint64_t>(src, rows, cols, dst);
    default: CHECK(false, "elements of %lld bytes", static_cast<long long>(bytes));
  }
}

}  // namespace rw
