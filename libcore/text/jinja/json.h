// Values as JSON text, as Python's json.dumps writes it (the tojson filter that chat templates are written for).
#pragma once
#include "libcore/text/jinja/arguments.h"

namespace rw::jinja {

// tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False): nothing is escaped for HTML.
Value to_json(Heap& heap, const Value& self, const Arguments& arguments);

}  // namespace rw::jinja
