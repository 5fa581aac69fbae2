// What a checkpoint's files hold, read with the HDF5 library alone, for whoever must not trust the checkpoint's own
// reader; and what that reader makes of it, for comparison.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "libcore/ckpt/checkpoint.h"

namespace faults {

using TensorDigests = std::map<std::string, uint64_t>;  // of the whole tensor's bytes

// Puts the tensors together from the attributes of their pieces in these files. Throws std::runtime_error.
TensorDigests digests_by_hdf5(const std::vector<std::filesystem::path>& files);
// The same of a directory's *.h5.
TensorDigests digests_by_hdf5(const std::filesystem::path& dir);
TensorDigests digests_by_checkpoint(const rw::Checkpoint& checkpoint);

}  // namespace faults
