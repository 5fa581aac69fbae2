#include "tools/drain_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace rw {
namespace {

// Seconds after the second signal in which the server may still end by itself.
constexpr unsigned kGraceS = 3;

std::atomic<int> count{0};
std::atomic<bool> serving{false};

void on_signal(int number) {
  const int so_far = ++count;
  if (!serving.load() || so_far > 2) ::_exit(128 + number);
  if (so_far == 2) ::alarm(kGraceS);  // its signal ends the process
}

}  // namespace

void catch_drain_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

void serving_began() { serving = true; }
int drain_signals() { return count.load(); }

}  // namespace rw
