// SIGTERM and SIGINT ask a server to finish what runs and end; a second one to end at once.
#pragma once

namespace rw {

// A server that has not begun to serve ends at the first one.
void catch_drain_signals();
void serving_began();
int drain_signals();  // how many have come

}  // namespace rw
