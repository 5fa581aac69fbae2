#include "kernels/op_log.h"

namespace rw {

void OpLog::count(std::string_view op, const Cost& cost) {
  auto at = ops.find(op);  // no key is built for a name already there
  if (at == ops.end()) at = ops.emplace(op, OpCount{}).first;
  OpCount& n = at->second;
  ++n.calls;
  n.cost.flops += cost.flops;
  n.cost.bytes_read += cost.bytes_read;
  n.cost.bytes_written += cost.bytes_written;
}

}  // namespace rw
