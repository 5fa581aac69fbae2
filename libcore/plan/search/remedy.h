// What would help when nothing fits.
#pragma once
#include <string>

#include "libcore/plan/search/search.h"

namespace rw {

// The smallest change with which something fits, and the best layout then: a pin less, more nodes with the pins kept,
// more nodes without them. Otherwise what was tried.
std::string find_remedy(const PlanQuestion& question);

}  // namespace rw
