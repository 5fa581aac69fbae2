// A pipeline step as a picture: time across, a row for each stage (what it does, by micro-batch; grey is bubble), and
// under it what each stage holds in memory.
#pragma once
#include <string>

#include "libcore/plan/draw/schedule_view.h"

namespace rw {

// An SVG 1.1 document in UTF-8: the same bytes for the same view. Numbers are left out of boxes that are too narrow.
std::string schedule_svg(const ScheduleView& view);

}  // namespace rw
