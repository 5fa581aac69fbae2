// The functions every template sees: range, namespace, dict, joiner, cycler, raise_exception, strftime_now.
#pragma once
#include <ctime>

#include "libcore/text/jinja/scope.h"

namespace rw::jinja {

// A template's own raise_exception(message).
struct Raised : Fault {
  using Fault::Fault;
};

// `now`: what strftime_now shows.
void define_globals(Heap& heap, const std::tm& now, Scope& scope);

}  // namespace rw::jinja
