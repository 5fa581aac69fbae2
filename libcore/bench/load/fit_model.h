// Makes the lengths that nobody asked for fit the model that is served.
#pragma once
#include <string>
#include <vector>

#include "libcore/bench/load/load_spec.h"
#include "libcore/bench/load/server_probe.h"

namespace rw {

// Fills input_len and output_len where they are "" with the defaults, shortened to what the model's context has room
// for (max_model_len, where the server tells it); a prefix of the default length is shortened with them. Lengths that
// were said stay. Returns what was shortened, for people. Error{usage} when what was said leaves no room.
std::vector<std::string> fit_to_model(ServeLoadSpec& spec, const ServedModelInfo& model);

}  // namespace rw
