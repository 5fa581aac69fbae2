// What the CUDA runtime refuses a communicator, as Error{runtime}.
#pragma once
#include "libcore/device/cuda_errors.h"

#define RW_EXPECT_CUDA(call) ::rw::as_errors([&] { RW_CUDA(call); })
