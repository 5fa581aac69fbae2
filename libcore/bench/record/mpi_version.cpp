#include "libcore/bench/record/mpi_version.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <string_view>

namespace rw {

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return {};
  // The rest names who built it, when and where.
  const std::string_view whole(text, static_cast<size_t>(length));
  return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

}  // namespace rw
