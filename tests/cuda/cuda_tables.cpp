#include "tests/cuda/cuda_tables.h"

#include "kernels/cuda/error.h"
#include "kernels/cuda/table.h"
#include "kernels/wrap_ops.h"

// After the above: the toolkit's names.
#include <cuda_runtime_api.h>

namespace rw::test {
namespace {

struct Waited {
  template <auto op, OpName, class Args>
  static void call(const Args& a, Stream s) {
    (cuda_ops().*op)(a, s);
    RW_CUDA(cudaStreamSynchronize(static_cast<cudaStream_t>(s.native)));
  }
  template <auto op, class Args>
  static int64_t size(const Args& a, Stream s) {
    return (cuda_ops().*op)(a, s);
  }
};

}  // namespace

const Ops& waited_cuda_ops() {
  static constexpr Ops table = wrap_ops<Waited>("cuda");
  return table;
}

}  // namespace rw::test
