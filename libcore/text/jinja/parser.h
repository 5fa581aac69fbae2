// From a template's text to its statements.
#pragma once
#include <string_view>

#include "libcore/text/jinja/ast.h"

namespace rw::jinja {

// `constants` owns the literals' values and outlives the body. Throws SyntaxFault.
Body parse_template(std::string_view source, Heap& constants);

}  // namespace rw::jinja
