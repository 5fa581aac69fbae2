// Linear layers whose weights are kept in 8 or 4 bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "libcore/model/block.h"
#include "libcore/model/linear.h"

using namespace rw;

namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;
Memory memory(int64_t bytes) {
  return Memory(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))));
}

float value(int64_t i) { return static_cast<float>((i * 7919 + i / 13) % 2001 - 1000) * 1e-3f; }

}  // namespace

// y = x W^T + b over what quant_unpack says was kept of W; rows are rounded to 16 bits of their largest element, sums
// are in f32 (u of the sum of magnitudes for each step is more than enough).
TEST_CASE("linear: weights in 8 and 4 bits give the product with what was kept of them") {
  const int64_t n = 45, k = 300, rows = 9;
  std::vector<float> w(static_cast<size_t>(n * k)), bias(static_cast<size_t>(n)), x(static_cast<size_t>(rows * k)),
      y(static_cast<size_t>(rows * n)), kept(w.size());
  for (int64_t i = 0; i < n * k; ++i) w[static_cast<size_t>(i)] = value(i + 1);
  for (int64_t i = 0; i < n; ++i) bias[static_cast<size_t>(i)] = value(i + 5);
  for (int64_t i = 0; i < rows * k; ++i) x[static_cast<size_t>(i)] = value(3 * i + 2);
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::int4}) {
    for (const int64_t group : {0, 64}) {
      Exec exec{.ops = this_cpu_ops(), .stream = {.threads = 2}, .t = DType::f32};
      PackedLinear linear{
          .master = w.data(), .bias = bias.data(), .n_out = n, .n_in = k, .format = format, .group = group};
      PackedLinear plain = linear;
      plain.format = WeightFormat::plain;
      const int64_t bytes = packed_fwd_bytes(linear, exec);
      CHECK(bytes < packed_fwd_bytes(plain, exec) / (format == WeightFormat::int8 ? 2 : 4));
      const Memory packed = memory(bytes), workspace = memory(linear_workspace_bytes(rows, linear, exec));
      CHECK(linear_workspace_bytes(rows, linear, exec) == linear_fwd_workspace_bytes(rows, linear, exec));
      linear.fwd = packed.get();
      exec.workspace = workspace.get();
      pack_fwd(linear, exec);
      linear.master = nullptr;
      linear_fwd(y.data(), x.data(), rows, linear, exec);
      const QuantBits bits = format == WeightFormat::int8 ? QuantBits::int8 : QuantBits::int4;
      exec.ops.quant_unpack({.b = kept.data(),
                             .packed = packed.get(),
                             .n = n,
                             .k = k,
                             .bits = bits,
                             .group = group > 0 ? group : default_quant_group(bits)},
                            exec.stream);
      size_t wrong = 0;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = static_cast<double>(bias[static_cast<size_t>(j)]), magnitude = std::abs(sum), weights = 0;
          for (int64_t i = 0; i < k; ++i) {
            const double a = static_cast<double>(x[static_cast<size_t>(r * k + i)]),
                         b = static_cast<double>(kept[static_cast<size_t>(j * k + i)]);
            sum += a * b, magnitude += std::abs(a * b), weights += std::abs(b);
          }
          const double bound = 0.51 / 32639 * weights + static_cast<double>(k) * 0x1p-24 * magnitude;  // |x| <= 1
          wrong += !(std::abs(static_cast<double>(y[static_cast<size_t>(r * n + j)]) - sum) <= bound);
        }
      }
      CHECK(wrong == 0);
    }
  }
}
