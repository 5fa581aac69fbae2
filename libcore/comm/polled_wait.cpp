#include "libcore/comm/polled_wait.h"

#include <string>

#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/patience.h"

namespace rw {
namespace {

constexpr double kLastLookS = 1e-3;

// The words of comm.wait(), with the time that was waited in all.
void give_up(Comm& comm, Request request) {
  const double timeout_s = comm.timeout_s();
  comm.set_timeout(kLastLookS);
  try {
    comm.wait(request);
  } catch (const Error& e) {
    comm.set_timeout(timeout_s);
    std::string text = e.what();
    const std::string last_look = "within " + format_seconds(kLastLookS);
    if (const size_t at = text.find(last_look); at != std::string::npos)
      text.replace(at, last_look.size(), "within " + format_seconds(timeout_s));
    throw Error(e.kind(), text);
  }
  comm.set_timeout(timeout_s);
}

}  // namespace

void wait_while_moving(Comm& comm, Request request, const std::function<void()>& move_on) {
  Patience patience(nullptr, ranks_fit_cores(comm.size()));
  while (!comm.done(request)) {
    move_on();
    patience.pause();
    if (patience.slept()) comm.look_for_dead_peers();
    if (patience.waited_s() > comm.timeout_s()) give_up(comm, request);
  }
}

}  // namespace rw
