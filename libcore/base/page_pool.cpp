#include "libcore/base/page_pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/os_error.h"

namespace rw {

PagePool::~PagePool() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
}

void PagePool::need(int64_t bytes) {
  if (bytes <= bytes_) return;
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), static_cast<size_t>(std::exchange(bytes_, 0)));
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ErrorKind::runtime,
         "{} bytes of memory for staging a checkpoint: {}; with less memory allowed it passes in waves", bytes,
         os_error_text(errno));
  }
  ::madvise(memory, static_cast<size_t>(bytes),
            MADV_HUGEPAGE);  // fewer faults and TLB misses, where the system has them
  data_ = static_cast<char*>(memory);
  bytes_ = bytes;
}

}  // namespace rw
