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

bool has_older_devices() { return true; }
void older_device(void (*f)(const void*), const void* argument) {
  simt::set_capability(80);
  f(argument);
  simt::set_capability(90);
}

}  // namespace rw::test
