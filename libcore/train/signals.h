// SIGUSR1, SIGINT and SIGTERM ask for a clean stop: finish the step, save, exit 75. A second one ends the process at
// once.
#pragma once

namespace rw {

void catch_stop_signals();
int stop_signal();  // the signal that asked, 0 for none

}  // namespace rw
