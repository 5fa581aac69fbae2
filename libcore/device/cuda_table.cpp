#include "libcore/device/cuda_table.h"

#include "kernels/cuda/table.h"
#include "kernels/wrap_ops.h"
#include "libcore/device/cuda_errors.h"

namespace rw {
namespace {

struct Told {
  template <auto op, OpName, class Args>
  static void call(const Args& a, Stream s) {
    as_errors([&] { (cuda::device_ops().*op)(a, s); });
  }
  template <auto op, class Args>
  static int64_t size(const Args& a, Stream s) {
    return as_errors([&] { return (cuda::device_ops().*op)(a, s); });
  }
};

}  // namespace

const Ops& cuda_device_ops() {
  static constexpr Ops table = wrap_ops<Told>("cuda");
  return table;
}

void try_cuda_device() { cuda::has_warpgroup_products(); }

int64_t cuda_most_head_size() { return cuda::most_attention_head_size(); }

}  // namespace rw
