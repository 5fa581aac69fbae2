// Python's str methods that cut: split, rsplit, splitlines, partition, rpartition.
#pragma once
#include "libcore/text/jinja/arguments.h"

namespace rw::jinja {

template <bool kFromRight>
Value split(Heap& heap, const Value& self, const Arguments& arguments);
template <bool kFromRight>
Value partition(Heap& heap, const Value& self, const Arguments& arguments);
Value split_lines_method(Heap& heap, const Value& self, const Arguments& arguments);

}  // namespace rw::jinja
