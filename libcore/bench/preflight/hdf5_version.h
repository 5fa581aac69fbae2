#pragma once
#include <string>

namespace rw {
std::string hdf5_version();  // of the library that this program is linked against: "1.10.8"
}
