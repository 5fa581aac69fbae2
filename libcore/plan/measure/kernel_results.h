// What `dbench kernels --json` measured, as the fractions of the peaks that products, attention and the rest reach.
#pragma once
#include <string>
#include <vector>

#include "libcore/spec/cluster_spec.h"

namespace rw {

// 0 where no op tells. Products and attention: the best of an element type's shapes over its peak, the mean of the
// types; the rest: the median of the ops' bytes/s over the copy's. At most 1, though data in the caches may be faster.
struct KernelFractions {
  double gemm = 0, attention = 0, memory = 0;
  std::string backend;             // "cpu/avx512_bf16", "cuda:0 (NVIDIA H200)"; "": the record does not say
  std::string where;               // the record's file
  std::vector<std::string> notes;  // what was not used
};
// `text`: the record. Ops that ran while the machine was not quiet are passed over. Error{input} names `where` and the
// op.
KernelFractions read_kernel_results(const std::string& text, const std::string& where);

}  // namespace rw
