// Ops that move bytes and compute nothing: one function for every instruction set.
#pragma once
#include "kernels/ops.h"

namespace rw {

void cpu_zero(const Zero&, Stream);
void cpu_read(const Read&, Stream);
void cpu_upload(const Upload&, Stream);

}  // namespace rw
