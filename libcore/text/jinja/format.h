// "%s of %d" % values: Python's printf-style formatting.
#pragma once
#include "libcore/text/jinja/value.h"

namespace rw::jinja {

// `values`: a tuple's items in order, a dict's by %(name)s, or one value. Fault: too few, too many, of a wrong type, or
// a conversion that Python does not have.
Value format_percent(Heap& heap, const std::string& format, const Value& values);

}  // namespace rw::jinja
