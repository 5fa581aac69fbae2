#include "libcore/plan/op_price.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/error.h"

namespace rw {
namespace {

double ceil_div(double a, double b) { return std::ceil(a / b); }

bool is_product(const OpCall& call) { return call.op == "gemm" || call.op == "quant_gemm"; }
bool is_attention(const OpCall& call) { return call.op == "attention_fwd" || call.op == "attention_bwd"; }

// Attention's inner products are k = head size: short of 128 they leave the units partly idle.
double head_size_efficiency(int64_t k) {
  const double d = static_cast<double>(std::max<int64_t>(k, 1));
  return d / (ceil_div(d, 64) * 64) * std::min(1.0, (ceil_div(d, 64) * 64 + 64) / 192);
}

}  // namespace

double peak_flops(const DeviceType& device, DType t) {
  const double peak = t == DType::f32 ? device.peak_f32 : t == DType::bf16 ? device.peak_bf16 : device.peak_f16;
  if (!(peak > 0))
    fail(ErrorKind::usage,
         "device {}: it has no peak for {} products; give peak-{} in the cluster file or another "
         "--precision",
         device.name, dtype_name(t), dtype_name(t));
  return peak;
}

double gemm_shape_efficiency(const DeviceType& device, int64_t m, int64_t n, int64_t k) {
  if (m <= 0 || n <= 0 || k <= 0) return 1;
  const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k);
  double share = 1;
  if (device.compute_units > 1) {
    const double tiles =
        ceil_div(dm, static_cast<double>(device.tile_m)) * ceil_div(dn, static_cast<double>(device.tile_n));
    const double units = static_cast<double>(device.compute_units);
    share = dm * dn / (ceil_div(tiles, units) * units * static_cast<double>(device.tile_m * device.tile_n));
  }
  return share * dk / (dk + device.gemm_half_k);
}

double op_seconds(const OpCall& call, const DeviceType& device, DType t) {
  const double bytes = call.cost.bytes_read + call.cost.bytes_written;
  double s = bytes / (device.memory_bandwidth * device.memory_fraction);
  if (is_product(call)) {
    const double rate = peak_flops(device, t) * device.gemm_fraction *
                        gemm_shape_efficiency(device, call.shape.m, call.shape.n, call.shape.k);
    s = std::max(s, call.cost.flops / rate);
  } else if (is_attention(call)) {
    s = std::max(
        s, call.cost.flops / (peak_flops(device, t) * device.attention_fraction * head_size_efficiency(call.shape.k)));
  }
  return static_cast<double>(call.calls) * (s + device.launch);
}

}  // namespace rw
