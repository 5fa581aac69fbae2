#include "libcore/device/arena.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/device/device_memory.h"

namespace rw {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t round_up(int64_t bytes) { return std::max(kPage, (bytes + kPage - 1) / kPage * kPage); }

// Touches every page: the first touch of fresh memory is far slower than any later one, so it is paid before step 1.
void touch(std::byte* data, int64_t bytes, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t offset = 0; offset < bytes; offset += kPage)
    *reinterpret_cast<volatile std::byte*>(data + offset) = std::byte{0};
}

// What gives back most of this owner's memory for the least that it costs.
const char* cheapest_remedy(MemoryOwner owner) {
  switch (owner) {
    case MemoryOwner::activations:
    case MemoryOwner::workspace: return "use --recompute full, or a smaller --micro-batch or --seq-len";
    case MemoryOwner::gradients: return "use --zero 2, more --tp or --pp, or a smaller model";
    case MemoryOwner::optimizer: return "use --zero 1, more --tp or --pp, or a smaller model";
    case MemoryOwner::kv: return "use --kv-dtype int8, or a smaller --max-model-len, --max-num-seqs or --memory";
    default: return "use a smaller model, --micro-batch or --seq-len";
  }
}

}  // namespace

const char* memory_owner_name(MemoryOwner o) {
  switch (o) {
    case MemoryOwner::weights: return "weights";
    case MemoryOwner::packed_weights: return "packed_weights";
    case MemoryOwner::gradients: return "gradients";
    case MemoryOwner::optimizer: return "optimizer";
    case MemoryOwner::activations: return "activations";
    case MemoryOwner::workspace: return "workspace";
    case MemoryOwner::data: return "data";
    case MemoryOwner::comm: return "comm";
    case MemoryOwner::kv: return "kv";
    case MemoryOwner::n_owners: break;
  }
  return "?";
}

Arena::~Arena() {
  for (const Block& block : blocks_) switch (block.place) {
      case Place::mapped: ::munmap(block.data, static_cast<size_t>(block.bytes)); break;
      case Place::device: device_->release(block.data); break;
      case Place::device_host: device_->release_host(block.data); break;
    }
}

void* Arena::take(int64_t bytes, MemoryOwner owner, int threads) {
  const int64_t rounded = round_up(bytes);
  if (kind_ == ArenaKind::count) {
    void* fake = reinterpret_cast<void*>(next_fake_);
    next_fake_ += rounded;
    held_[static_cast<size_t>(owner)] += rounded;
    return fake;
  }
  if (device_ != nullptr) return keep(device_->allocate(rounded), rounded, bytes, owner, Place::device);
  void* data = map(rounded, bytes, owner);
  touch(static_cast<std::byte*>(data), rounded, threads);
  return data;
}

void* Arena::take_untouched(int64_t bytes, MemoryOwner owner) {
  return device_ != nullptr ? take(bytes, owner) : map(round_up(bytes), bytes, owner);
}

void* Arena::take_host(int64_t bytes, MemoryOwner owner) {
  if (device_ != nullptr)
    return keep(device_->allocate_host(round_up(bytes)), round_up(bytes), bytes, owner, Place::device_host);
  void* data = map(round_up(bytes), bytes, owner);
  // What a dry run reads of it is zeros, which need no memory.
  if (kind_ == ArenaKind::memory) touch(static_cast<std::byte*>(data), round_up(bytes), 1);
  return data;
}

void* Arena::map(int64_t rounded, int64_t bytes, MemoryOwner owner) {
  void* data = rounded > available_bytes() ? MAP_FAILED
                                           : ::mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data != MAP_FAILED && rounded >= kHugePage) ::madvise(data, static_cast<size_t>(rounded), MADV_HUGEPAGE);
  return keep(data == MAP_FAILED ? nullptr : data, rounded, bytes, owner, Place::mapped);
}

// Enters a block, or says why there is none (null).
void* Arena::keep(void* data, int64_t rounded, int64_t bytes, MemoryOwner owner, Place place) {
  if (data == nullptr) {
    std::string holders;
    for (size_t i = 0; i < held_.size(); ++i)
      if (held_[i] > 0)
        holders += fmt::format(" {} {};", memory_owner_name(static_cast<MemoryOwner>(i)),
                               format_bytes(static_cast<double>(held_[i])));
    const bool on_device = place == Place::device;
    fail(ErrorKind::runtime, "out of memory{}: {} asked for {}, {} are available; held so far:{} {}",
         on_device ? " on " + device_->name() : "", memory_owner_name(owner), format_bytes(static_cast<double>(bytes)),
         format_bytes(static_cast<double>(on_device ? device_->free_bytes() : available_bytes())),
         holders.empty() ? " nothing;" : holders, cheapest_remedy(owner));
  }
  blocks_.push_back({data, rounded, place});
  held_[static_cast<size_t>(owner)] += rounded;
  return data;
}

void Arena::adopt(int64_t bytes, MemoryOwner owner) { held_[static_cast<size_t>(owner)] += bytes; }

int64_t Arena::total_bytes() const { return std::accumulate(held_.begin(), held_.end(), int64_t{0}); }

void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2147483647);
}

int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long size = 0, resident = 0;
  const int n = std::fscanf(file, "%lld %lld", &size, &resident);
  std::fclose(file);
  return n == 2 ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

int64_t peak_resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[128];
  long long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr && std::sscanf(line, "VmHWM: %lld kB", &kib) != 1) continue;
  std::fclose(file);
  return kib * 1024;
}

int64_t available_bytes() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return INT64_MAX;
  char line[128];
  long long kib = -1;
  while (kib < 0 && std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "MemAvailable: %lld kB", &kib) != 1) kib = -1;
  std::fclose(file);
  return kib < 0 ? INT64_MAX : kib * 1024;
}

}  // namespace rw
