#include "libcore/comm/shm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

#include "libcore/base/clock.h"

namespace rw {
namespace {

using Name = std::array<char, 64>;  // empty: not created

struct Descriptor {
  int fd = -1;
  explicit Descriptor(int f) : fd(f) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

Name create(int64_t bytes) {
  // The time tells apart processes of one number in containers that share /dev/shm.
  static int n_created = 0;
  for (int attempt = 0; attempt < 100; ++attempt) {
    Name name{};
    std::snprintf(name.data(), name.size(), "/rankwright-%d-%d-%lld", static_cast<int>(getpid()), n_created++,
                  static_cast<long long>(now_s() * 1e9));
    Descriptor file(shm_open(name.data(), O_RDWR | O_CREAT | O_EXCL, 0600));
    if (file.fd < 0) continue;
    if (ftruncate(file.fd, bytes) == 0) return name;
    shm_unlink(name.data());
    break;
  }
  return {};
}

std::shared_ptr<std::byte> map(const Name& name, int64_t bytes, int64_t own_begin, int64_t own_bytes) {
  Descriptor file(shm_open(name.data(), O_RDWR, 0600));
  if (file.fd < 0 || posix_fallocate(file.fd, own_begin, own_bytes) != 0) return nullptr;
  void* p = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  if (p == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(p), [bytes](std::byte* q) { munmap(q, static_cast<size_t>(bytes)); }};
}

}  // namespace

int64_t page_up(int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

std::shared_ptr<std::byte> make_shared_memory(const ShmRequest& r) {
  const int64_t total = r.ranks * r.bytes_per_rank;
  Name name{};
  if (r.rank == 0) name = create(total);
  std::vector<Name> names(static_cast<size_t>(r.ranks));
  r.exchange(name.data(), names.data(), sizeof name);

  std::shared_ptr<std::byte> memory;
  if (names[0][0] != '\0') memory = map(names[0], total, r.rank * r.bytes_per_rank, r.bytes_per_rank);
  const int64_t mapped = memory != nullptr;
  std::vector<int64_t> all_mapped(static_cast<size_t>(r.ranks));
  r.exchange(&mapped, all_mapped.data(), sizeof mapped);
  if (r.rank == 0 && name[0] != '\0') shm_unlink(name.data());
  for (int64_t ok : all_mapped)
    if (!ok) return nullptr;
  // Page tables are filled now rather than by faults in the first steps.
  madvise(memory.get(), static_cast<size_t>(total), MADV_POPULATE_WRITE);
  return memory;
}

}  // namespace rw
