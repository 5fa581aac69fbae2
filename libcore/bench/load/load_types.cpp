#include "libcore/bench/load/load_types.h"

namespace rw {

const char* load_end_name(LoadEnd end) {
  switch (end) {
    case LoadEnd::ok: return "ok";
    case LoadEnd::disconnected: return "disconnected";
    case LoadEnd::refused_429: return "refused_429";
    case LoadEnd::refused_503: return "refused_503";
    case LoadEnd::http_error: return "http_error";
    case LoadEnd::connect_error: return "connect_error";
    case LoadEnd::closed_mid_stream: return "closed_mid_stream";
    case LoadEnd::malformed_stream: return "malformed_stream";
    case LoadEnd::error_event: return "error_event";
    case LoadEnd::timed_out: return "timed_out";
    case LoadEnd::wrong_text: return "wrong_text";
    case LoadEnd::no_output: return "no_output";
    case LoadEnd::n_ends: break;
  }
  return "?";
}

}  // namespace rw
