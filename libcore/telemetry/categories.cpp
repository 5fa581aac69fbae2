#include "libcore/telemetry/categories.h"

namespace rw {

const char* time_category_name(TimeCategory c) {
  switch (c) {
    case TimeCategory::compute: return "compute";
    case TimeCategory::communication: return "communication";
    case TimeCategory::bubble: return "bubble";
    case TimeCategory::data: return "data";
    case TimeCategory::checkpoint: return "checkpoint";
    case TimeCategory::n_categories: break;
  }
  return "?";
}

}  // namespace rw
