// SampleScan on the CPU: the same for all instruction sets. The server's own sampler has faster loops (libcore/serve);
// this is what programs that know only op tables call.
#pragma once
#include "kernels/ops.h"

namespace rw {

void cpu_sample_scan(const SampleScan&, Stream);

}  // namespace rw
