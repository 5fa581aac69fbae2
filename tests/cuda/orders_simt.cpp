// The orders of the simulator.
#include "kernels/simt/runtime.cuh"
#include "tests/cuda/cuda_tables.h"

namespace rw::test {

void each_order(void (*f)(const void*), const void* argument) {
  for (const simt::Order order : simt::kOrders) {
    simt::set_order(order);
    f(argument);
  }
  simt::set_order(simt::Order::forward);
}

}  // namespace rw::test
