// Shared memory of the processes of one host: POSIX shm, created by one rank, mapped by all, and unlinked as soon as
// all have it, so that nothing is left behind however the job ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace rw {

// all (ranks, bytes) <- mine (bytes) of every rank.
using Exchange = std::function<void(const void* mine, void* all, int64_t bytes)>;

struct ShmRequest {
  int rank = 0, ranks = 1;
  int64_t bytes_per_rank = 0;  // a multiple of the page size
  Exchange exchange;
};

// Collective: zeroed memory of ranks * bytes_per_rank, mapped by every rank. Each rank reserves its own part, so that
// the pages are there (a full /dev/shm is found here and not by SIGBUS later) and near its cores. Null, on all ranks
// alike, when one of them cannot have it.
std::shared_ptr<std::byte> make_shared_memory(const ShmRequest& request);

int64_t page_up(int64_t bytes);

}  // namespace rw
