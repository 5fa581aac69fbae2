// Elements on their way between files and memory: conversions, boxes cut out of boxes, transposes. Pointers into files
// may be unaligned.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/dtype.h"
#include "libcore/spec/box.h"

namespace rw {

// Bytes of a tensor of this shape; -1 when an extent is negative or the product does not fit 63 bits.
int64_t checked_bytes(const Shape& shape, DType t);
// Finds the dtype with this name ("bf16"); false when there is none.
bool dtype_from_name(const char* name, DType& t);

// What a file's elements can be read as: their own type, or f32 from f64, bf16, f16 and i64.
bool can_read_as(DType stored, DType wanted);
// dst[i] = src[i], i in [0, n). The pairs of can_read_as, and f32 to bf16 or f16, rounded to nearest even (f16
// overflows to infinity).
void convert_elements(const void* src, DType src_type, void* dst, DType dst_type, int64_t n);

// Error{input} when one of n finite values is beyond f16's 65504, which convert_elements makes an infinity.
void check_fits_f16(const float* values, int64_t n, const std::string& name, const std::string& where);

// A row-major buffer that holds exactly `box`.
struct BoxBytes {
  const void* data;
  DType dtype;
  const Box& box;
};
// Copies `part`, which lies in both boxes, from src into the buffer dst, which holds dst_box as dst_type.
void copy_part(const Box& part, const BoxBytes& src, void* dst, DType dst_type, const Box& dst_box);

// Of a file's read-only mapping that holds `mapped`: lets go of the memory between the first and the last element of
// `part`, which is read again when it is touched. So what passes through once does not pile up in the process; parts
// too small to matter are kept.
void let_go(const Box& part, const BoxBytes& mapped);

// dst(cols, rows) = transpose of src(rows, cols), elements of `bytes` (2, 4 or 8) bytes.
void transpose_elements(const void* src, int64_t rows, int64_t cols, int64_t bytes, void* dst);

}  // namespace rw
