// Names that go unescaped into files for launchers, schedulers and libraries: what they may be made of.
#pragma once
#include <string>

#include "libcore/plan/place/place_format.h"

namespace rw {

// Letters, digits, dots, dashes, underscores and colons, at most 253 (RFC 1123), not a dash first.
bool is_host_name(const std::string& name);

// Error{usage} names the flag and what it may be: interfaces, NICs, PCI addresses (dddd:bb:dd.f, all different), the
// job's name (a label of RFC 1123), the image, the leaf's label.
void check_place_names(const PlaceNames& names);

}  // namespace rw
