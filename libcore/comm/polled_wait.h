// Waiting for an operation while other things must go on.
#pragma once
#include <functional>

#include "libcore/comm/comm.h"

namespace rw {

// Returns when `request` of `comm` is done; calls `move_on` meanwhile, again and again. Past comm's timeout it throws
// what comm.wait() would.
void wait_while_moving(Comm& comm, Request request, const std::function<void()>& move_on);

}  // namespace rw
