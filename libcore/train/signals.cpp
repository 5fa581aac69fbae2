#include "libcore/train/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace rw {
namespace {

std::atomic<int> asked{0};

void on_signal(int number) {
  int none = 0;
  if (asked.compare_exchange_strong(none, number)) return;
  static constexpr char kText[] = "second signal: stopping at once; the last committed checkpoint stands\n";
  [[maybe_unused]] const ssize_t n = ::write(2, kText, sizeof kText - 1);
  ::_exit(128 + number);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::signal(SIGPIPE, SIG_IGN);  // whoever reads the terminal's lines may go; training goes on
  for (const int number : {SIGUSR1, SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

int stop_signal() { return asked.load(); }

}  // namespace rw
