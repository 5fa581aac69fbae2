#include "kernels/simt/guarded_memory.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

namespace rw::simt {
namespace {

constexpr size_t kReserved = size_t{64} << 30;  // addresses, not memory
constexpr size_t kPage = size_t{2} << 20;       // a huge one: opening and closing cost by the page
constexpr size_t kAlign = 256;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// The guarded ranges, for the handler of a signal: it may take no lock. A slot is 0 when it is free.
std::array<std::atomic<uintptr_t>, 256> ranges;
struct sigaction before;

bool is_guarded(uintptr_t address) {
  for (const auto& range : ranges) {
    const uintptr_t base = range.load();
    if (base != 0 && address >= base && address < base + kReserved) return true;
  }
  return false;
}

// Only what a handler may call. Returning from it runs the faulting instruction again, which then dies as it would have
// without us.
void on_fault(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (is_guarded(address)) {
    char text[] =
        "\nsimt guard: the host touched device memory at 0x................ outside of the device's work; host code "
        "gets at it by the ops Read and Upload alone. It came from:\n";
    char* digit = std::strstr(text, "................");
    for (int shift = 60; shift >= 0; shift -= 4) *digit++ = "0123456789abcdef"[address >> shift & 15U];
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, sizeof text - 1);
    void* frames[32];
    ::backtrace_symbols_fd(frames, ::backtrace(frames, 32), STDERR_FILENO);
  }
  ::sigaction(SIGSEGV, &before, nullptr);
}

// Whoever had a handler, and may have put it in place of ours since, comes after us.
void install_handler() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  void* frame[1];
  ::backtrace(frame, 1);  // its first call loads a library, which a handler may not
  struct sigaction action {
  }, now{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &now);
  if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_fault) before = now;
}

}  // namespace

GuardedMemory::GuardedMemory() {
  map_ = ::mmap(nullptr, kReserved + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map_ == MAP_FAILED) throw std::bad_alloc();
  base_ = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(map_), kPage));
  ::madvise(base_, kReserved, MADV_HUGEPAGE);
  while (slot_ < ranges.size()) {
    uintptr_t none = 0;
    if (ranges[slot_].compare_exchange_strong(none, reinterpret_cast<uintptr_t>(base_))) break;
    ++slot_;
  }
  if (slot_ == ranges.size()) {
    ::munmap(map_, kReserved + kPage);
    throw std::runtime_error("simt guard: more than 256 devices in one process");
  }
  install_handler();
}

GuardedMemory::~GuardedMemory() {
  ranges[slot_].store(0);
  ::munmap(map_, kReserved + kPage);
}

void GuardedMemory::protect(size_t begin, size_t end) const {
  if (begin < end && ::mprotect(base_ + begin, end - begin, open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    throw std::runtime_error(std::string("simt guard: mprotect: ") + std::strerror(errno));
}

void GuardedMemory::open() {
  if (open_++ == 0) protect(0, used_);
}
void GuardedMemory::close() {
  if (--open_ == 0) protect(0, used_);
}

void* GuardedMemory::allocate(size_t bytes) {
  const size_t size = round_up(bytes, kAlign);
  auto at = free_.begin();
  while (at != free_.end() && at->second < size) ++at;
  if (at == free_.end()) {
    const size_t begin = used_, end = used_ + round_up(size, kPage);
    if (end > kReserved) return nullptr;
    used_ = end;
    protect(begin, end);
    at = free_.emplace(begin, end - begin).first;
  }
  const auto [begin, room] = *at;
  free_.erase(at);
  if (room > size) free_.emplace(begin + size, room - size);
  return base_ + begin;
}

void GuardedMemory::release(void* piece, size_t bytes) {
  const size_t begin = static_cast<size_t>(static_cast<char*>(piece) - base_), size = round_up(bytes, kAlign);
  auto at = free_.emplace(begin, size).first;
  if (const auto next = std::next(at); next != free_.end() && begin + size == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  if (const auto prior = std::prev(at); prior->first + prior->second == begin) {
    prior->second += at->second;
    free_.erase(at);
  }
}

}  // namespace rw::simt
