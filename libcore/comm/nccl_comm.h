// Communicators of ranks whose tensors lie on GPUs: NCCL for device memory, the host communicator for host memory.
//
// Which of the two is decided by the address, on all ranks alike: all ranks of an operation give memory of one kind.
// On device memory an operation runs on a stream of the communicator's own, behind what the device's stream holds when
// it is started and beside what is put there afterwards. wait(request) makes the device's stream wait and returns at
// once; from then on done(request) is true and ops may use the result. The host sees it after Device::wait().
// What is not as comm.h says, on device memory:
//   - Sums run in NCCL's order: the same bits on all ranks and in every run with the same sizes and algorithm, but
//     reduce_scatter's need not be all_reduce's. Sums of bf16 and f16 are rounded after each addition.
//   - A prepared message's size and tag are not compared with its receiver's: NCCL knows neither. Messages of a pair
//     must be of one kind at both ends; those of host and of device memory are two sequences.
//   - A message that was not prepared goes through page-locked memory and the host communicator: its send_start() waits
//     for the device's stream, and so does wait() for the peer.
//   - The first use of a communicator connects its ranks and may wait for them.
// barrier() and operations of no elements are the host's.
//
// An operation that is under way for timeout_s(), an error that NCCL reports, or a peer that died abort all
// communicators that were split from one: streams go on with results that mean nothing, and every later call of any of
// them, take_stalled_s() included, throws Error{runtime} naming the operation and who did not arrive. Communicators
// made anew from the host's work.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/device/device.h"

namespace rw {

// Collective over host. The device's memory is the GPU's; host and device outlive the communicator.
std::unique_ptr<Comm> make_nccl_comm(Comm& host, Device& device);
// Null where the device computes in the host's memory: the host communicator serves. Otherwise make_nccl_comm().
std::unique_ptr<Comm> device_comm(Comm& host, Device& device);
// Collective over host: the names of all ranks' devices. SharedError{usage} when two ranks of a host were given the
// same GPU, which NCCL refuses.
std::vector<std::string> devices_of_ranks(Comm& host, const Device& device);

}  // namespace rw
