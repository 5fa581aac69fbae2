// Errors that only some ranks meet become one error that all ranks throw, so that nobody waits for a peer that gave up
// and the message is printed once.
#pragma once
#include <functional>

#include "libcore/base/error.h"
#include "libcore/comm/comm.h"

namespace rw {

// Thrown by every rank of a communicator alike: whoever prints it does so on rank 0 only.
class SharedError : public Error {
 public:
  using Error::Error;
};

// Collective. Runs body on every rank; when it throws Error on any, all throw SharedError with the first such rank's
// kind and message, naming rank and host where it is not the same on all.
void agree(Comm& comm, const std::function<void()>& body);

}  // namespace rw
