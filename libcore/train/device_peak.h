// How fast a device multiplies matrices: what its utilisation is measured against.
#pragma once
#include "libcore/device/device.h"

namespace rw {

// FLOP/s of the device's own product of two large square matrices of type t; takes about `seconds`. For devices with
// memory of their own, before anything else is put on the stream. Error{runtime} when their memory is full.
double measure_device_peak(Device& device, DType t, double seconds);

}  // namespace rw
