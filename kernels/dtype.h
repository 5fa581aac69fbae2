// The element types that tensors, kernels and files speak of.
#pragma once
#include <cstdint>

namespace rw {

enum class DType : uint8_t { f32, bf16, f16, f64, i64, i32, u16, u8, i8 };

constexpr int64_t dtype_bytes(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16: return 2;
    case DType::u8:
    case DType::i8: return 1;
  }
  return 0;
}

constexpr const char* dtype_name(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::f64: return "f64";
    case DType::i64: return "i64";
    case DType::i32: return "i32";
    case DType::u16: return "u16";
    case DType::u8: return "u8";
    case DType::i8: return "i8";
  }
  return "?";
}

}  // namespace rw
