#include "tests/faults/saved_tensors.h"

#include <hdf5.h>

#include <stdexcept>

#include "libcore/base/hash.h"

namespace faults {

namespace {

namespace fs = std::filesystem;

struct Tensor {
  std::vector<hsize_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Tensor>;

std::vector<hsize_t> attribute(hid_t dataset, const char* name, size_t n) {
  std::vector<hsize_t> values(n);
  if (n == 0) return values;
  const hid_t a = H5Aopen(dataset, name, H5P_DEFAULT);
  if (a < 0 || H5Aread(a, H5T_NATIVE_HSIZE, values.data()) < 0) throw std::runtime_error(std::string("no ") + name);
  H5Aclose(a);
  return values;
}

// Copies the box of `piece` to its place, row by row.
void place(Tensor& tensor, const std::string& piece, const std::vector<hsize_t>& at, const std::vector<hsize_t>& extent,
           size_t width) {
  const size_t rank = extent.size();
  const size_t row = (rank == 0 ? 1 : extent[rank - 1]) * width;
  std::vector<hsize_t> index(rank, 0);
  for (size_t from = 0; from < piece.size(); from += row) {
    size_t to = 0;
    for (size_t d = 0; d < rank; ++d) to = to * tensor.shape[d] + at[d] + index[d];
    tensor.bytes.replace(to * width, row, piece, from, row);
    for (size_t d = rank < 2 ? 0 : rank - 1; d-- > 0;) {
      if (++index[d] < extent[d]) break;
      index[d] = 0;
    }
  }
}

herr_t add_dataset(hid_t file, const char* name, const H5O_info_t* info, void* all) {
  if (info->type != H5O_TYPE_DATASET) return 0;
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset), type = H5Dget_type(dataset);
  const auto rank = static_cast<size_t>(H5Sget_simple_extent_ndims(space));
  std::vector<hsize_t> extent(rank);
  H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  const size_t width = H5Tget_size(type);
  std::string piece(static_cast<size_t>(H5Sget_simple_extent_npoints(space)) * width, '\0');
  if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, piece.data()) < 0) return -1;
  const std::vector<hsize_t> at = attribute(dataset, "offset", rank), shape = attribute(dataset, "global_shape", rank);
  const std::string full = name;
  Tensor& tensor = (*static_cast<Tensors*>(all))[full.substr(0, full.find('#'))];
  if (tensor.bytes.empty()) {
    size_t n = width;
    for (const hsize_t d : shape) n *= d;
    tensor = {shape, std::string(n, '\0')};
  }
  place(tensor, piece, at, extent, width);
  H5Tclose(type);
  H5Sclose(space);
  H5Dclose(dataset);
  return 0;
}

}  // namespace

TensorDigests digests_by_hdf5(const std::vector<fs::path>& files) {
  Tensors all;
  for (const fs::path& path : files) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0 || H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, add_dataset, &all, H5O_INFO_BASIC) < 0)
      throw std::runtime_error(path.string() + " cannot be read");
    H5Fclose(file);
  }
  TensorDigests digests;
  for (const auto& [name, tensor] : all) digests[name] = rw::hash64(tensor.bytes);
  return digests;
}

TensorDigests digests_by_hdf5(const fs::path& dir) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  return digests_by_hdf5(files);
}

TensorDigests digests_by_checkpoint(const rw::Checkpoint& checkpoint) {
  TensorDigests digests;
  for (const rw::TensorInfo& t : checkpoint.tensors()) {
    const rw::Box box = rw::whole(t.shape);
    std::string bytes(static_cast<size_t>(box.size() * rw::dtype_bytes(t.dtype)), '\0');
    checkpoint.read(t.name, box, t.dtype, bytes.data());
    digests[t.name] = rw::hash64(bytes);
  }
  return digests;
}

}  // namespace faults
