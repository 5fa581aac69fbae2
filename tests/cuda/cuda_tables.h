// The cuda table as the kernel tests call it: each op is waited for, in every order that the simulator has; on a GPU
// twice.
#pragma once
#include "kernels/ops.h"

namespace rw::test {

// Each function of cuda_ops(), and then a wait for its stream. Throws what a kernel did wrong.
const Ops& waited_cuda_ops();
// f in each order of threads.
void each_order(void (*f)(const void*), const void* argument);
template <class F>
void in_each_order(const F& f) {
  each_order([](const void* argument) { (*static_cast<const F*>(argument))(); }, &f);
}
// f on a device of compute capability 8.0, where there is one beside the others: in the simulator.
bool has_older_devices();
void older_device(void (*f)(const void*), const void* argument);
template <class F>
void on_older_device(const F& f) {
  older_device([](const void* argument) { (*static_cast<const F*>(argument))(); }, &f);
}

}  // namespace rw::test
