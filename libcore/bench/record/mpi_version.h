#pragma once
#include <string>

namespace rw {

// Of the library that this program is linked against: "Open MPI v4.1.4", the first words of what it says of itself. May
// be asked before MPI is initialised (MPI 3.1, section 8.1.1).
std::string mpi_library_version();

}  // namespace rw
