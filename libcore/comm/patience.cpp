#include "libcore/comm/patience.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "libcore/base/clock.h"

namespace rw {
namespace {

constexpr int64_t kSpinRounds = 300;   // about 15 us of pause instructions
constexpr double kYieldS = 100e-6;     // then yield until this age
constexpr long kSleepNs = 10'000'000;  // a sleep ends after 10 ms at the latest, to look for dead peers
constexpr long kPollSleepNs = 50'000;  // where nobody rings

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The word may be shared by processes, hence no FUTEX_PRIVATE_FLAG.
long futex(std::atomic<uint32_t>& word, int op, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op, value, timeout, nullptr, 0);
}

}  // namespace

void ring(Bell& bell) {
  if (bell.waiting.load() == 0) return;
  bell.count.fetch_add(1);
  futex(bell.count, FUTEX_WAKE, INT_MAX, nullptr);
}

Patience::Patience(Bell* bell, bool may_spin) : bell_(bell), may_spin_(may_spin) {}
Patience::~Patience() {
  if (armed_) bell_->waiting.store(0);
}

void Patience::moved() {
  if (armed_) bell_->waiting.store(0);
  armed_ = slept_ = false;
  rounds_ = 0;
  since_s_ = -1;
}

double Patience::waited_s() {
  const double now = now_s();
  if (since_s_ < 0) since_s_ = now;
  return now - since_s_;
}

void Patience::pause() {
  slept_ = false;
  if (may_spin_ && rounds_++ < kSpinRounds) return cpu_relax();
  if (waited_s() < kYieldS) {
    sched_yield();
    return;
  }
  if (!bell_) {
    const timespec t{0, kPollSleepNs};
    nanosleep(&t, nullptr);
    slept_ = true;
  } else if (!armed_) {
    // The caller looks once more between this and the sleep: a peer that missed `waiting` stored its news before.
    bell_->waiting.store(1);
    seen_ = bell_->count.load();
    armed_ = true;
  } else {
    const timespec t{0, kSleepNs};
    futex(bell_->count, FUTEX_WAIT, seen_, &t);
    bell_->waiting.store(0);
    armed_ = false;
    slept_ = true;
  }
}

bool ranks_fit_cores(int ranks) { return ranks <= sysconf(_SC_NPROCESSORS_ONLN); }

}  // namespace rw
