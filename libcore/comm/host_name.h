// This host's name, as errors and run.json show it.
#pragma once
#include <string>

namespace rw {
std::string host_name();
}
