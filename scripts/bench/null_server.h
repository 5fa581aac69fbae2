// A server that does nothing but stream: each request gets chunks of one token on a timer. In a process of its own, so
// that a load client's CPU time can be told from it.
#pragma once
#include <sys/types.h>
#include <cstdint>

namespace rw {

struct NullServer {
  pid_t process = 0;
  int port = 0;
};
// Each request gets `tokens` chunks, `gap_s` apart. A chunk has the form of dserve's with return_token_ids; its text is
// the moment of its sending, kNullTimeDigits characters of now_s().
struct NullServerSpec {
  int64_t tokens = 50;
  double gap_s = 0.1;
};
constexpr int64_t kNullTimeDigits = 18;
NullServer start_null_server(const NullServerSpec& spec);  // forks
// Ends it; the CPU seconds it took.
double stop_null_server(const NullServer& server);

}  // namespace rw
