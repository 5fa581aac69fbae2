#include "libcore/ckpt/shard_layout.h"

#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "libcore/base/error.h"

namespace rw {

void FileImage::write(int64_t at, const char* data, int64_t n) {
  while (n > 0) {
    std::vector<char>& page = pages[at / kPageBytes];
    page.resize(static_cast<size_t>(kPageBytes));
    const int64_t part = std::min(n, kPageBytes - at % kPageBytes);
    std::memcpy(page.data() + at % kPageBytes, data, static_cast<size_t>(part));
    at += part, data += part, n -= part;
  }
}

void FileImage::read(int64_t at, char* data, int64_t n) const {
  while (n > 0) {
    const int64_t part = std::min(n, kPageBytes - at % kPageBytes);
    const auto page = pages.find(at / kPageBytes);
    if (page == pages.end()) std::memset(data, 0, static_cast<size_t>(part));
    else std::memcpy(data, page->second.data() + at % kPageBytes, static_cast<size_t>(part));
    at += part, data += part, n -= part;
  }
}

namespace {

// ---- A file driver over a FileImage ----

struct ImageFile {
  H5FD_t base;  // first: HDF5 sees only this
  FileImage* image;
  haddr_t end_of_allocated;
};
ImageFile* image_file(H5FD_t* file) { return reinterpret_cast<ImageFile*>(file); }
const ImageFile* image_file(const H5FD_t* file) { return reinterpret_cast<const ImageFile*>(file); }

H5FD_t* open_image(const char*, unsigned, hid_t access, haddr_t) {
  FileImage* const* image = static_cast<FileImage* const*>(H5Pget_driver_info(access));
  auto* file = new (std::nothrow) ImageFile{};
  if (file == nullptr || image == nullptr) return delete file, nullptr;
  file->image = *image;
  return &file->base;
}
herr_t close_image(H5FD_t* file) {
  image_file(file)->image->bytes = static_cast<int64_t>(image_file(file)->end_of_allocated);
  delete image_file(file);
  return 0;
}
herr_t query_image(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA;
  return 0;
}
haddr_t allocated_end(const H5FD_t* file, H5FD_mem_t) { return image_file(file)->end_of_allocated; }
herr_t set_allocated_end(H5FD_t* file, H5FD_mem_t, haddr_t at) {
  image_file(file)->end_of_allocated = at;
  return 0;
}
haddr_t file_end(const H5FD_t* file, H5FD_mem_t) { return image_file(file)->end_of_allocated; }
herr_t read_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t n, void* data) {
  image_file(file)->image->read(static_cast<int64_t>(at), static_cast<char*>(data), static_cast<int64_t>(n));
  return 0;
}
herr_t write_image(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t n, const void* data) {
  try {
    image_file(file)->image->write(static_cast<int64_t>(at), static_cast<const char*>(data), static_cast<int64_t>(n));
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

H5FD_class_t image_driver() {
  H5FD_class_t driver{};
  driver.name = "rankwright_image";
  driver.maxaddr = static_cast<haddr_t>(INT64_MAX);
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(FileImage*);
  driver.open = open_image;
  driver.close = close_image;
  driver.query = query_image;
  driver.get_eoa = allocated_end;
  driver.set_eoa = set_allocated_end;
  driver.get_eof = file_end;
  driver.read = read_image;
  driver.write = write_image;
  for (H5FD_mem_t& type : driver.fl_map) type = H5FD_MEM_SUPER;  // one free list for all kinds of metadata
  driver.fl_map[H5FD_MEM_DRAW] = H5FD_MEM_DRAW;
  return driver;
}

// ---- Layout ----

// The deepest entry of HDF5's error stack.
herr_t keep_deepest(unsigned, const H5E_error2_t* entry, void* text) {
  if (entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
  return 0;
}

[[noreturn]] void hdf5_failed(const std::string& action) {
  std::string cause = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_deepest, &cause);
  H5Eclear2(H5E_DEFAULT);
  fail(ErrorKind::runtime, "HDF5: {} failed: {}", action, cause);
}

// An HDF5 handle. close() reports; the destructor, on the way out of an error, cannot.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& action) : id_(id), close_(close) {
    if (id_ < 0) hdf5_failed(action);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t id() const { return id_; }
  void close(const std::string& action) {
    if (close_(std::exchange(id_, -1)) < 0) hdf5_failed(action);
  }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// The library prints its error stack on stderr unless told otherwise; ours say it once.
class QuietHdf5 {
 public:
  QuietHdf5() {
    H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  QuietHdf5(const QuietHdf5&) = delete;
  QuietHdf5& operator=(const QuietHdf5&) = delete;
  ~QuietHdf5() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

 private:
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// bf16 and f16 are described bit by bit, so that HDF5's tools print their values.
hid_t small_float(size_t exponent_bits, size_t mantissa_bits) {
  const hid_t t = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(t, 15, mantissa_bits, exponent_bits, 0, mantissa_bits);
  H5Tset_size(t, 2);
  H5Tset_ebias(t, (size_t{1} << (exponent_bits - 1)) - 1);
  return t;
}

hid_t file_type(DType t) {
  switch (t) {
    case DType::f32: return H5Tcopy(H5T_IEEE_F32LE);
    case DType::bf16: return small_float(8, 7);
    case DType::f16: return small_float(5, 10);
    case DType::f64: return H5Tcopy(H5T_IEEE_F64LE);
    case DType::i64: return H5Tcopy(H5T_STD_I64LE);
    case DType::i32: return H5Tcopy(H5T_STD_I32LE);
    case DType::u16: return H5Tcopy(H5T_STD_U16LE);
    case DType::u8: return H5Tcopy(H5T_STD_U8LE);
    case DType::i8: return H5Tcopy(H5T_STD_I8LE);
  }
  return -1;
}

void write_attribute(hid_t dataset, const char* name, const Shape& values) {
  if (values.empty()) return;
  const hsize_t n = values.size();
  const Handle space(H5Screate_simple(1, &n, nullptr), H5Sclose, "describing an attribute");
  const Handle attribute(H5Acreate2(dataset, name, H5T_STD_I64LE, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                         "creating an attribute");
  if (H5Awrite(attribute.id(), H5T_NATIVE_INT64, values.data()) < 0) hdf5_failed("writing an attribute");
}

int64_t create_dataset(hid_t file, const std::string& name, const TensorPiece& piece) {
  const std::string action = "laying out " + name;
  const Handle type(file_type(piece.dtype), H5Tclose, action);
  const std::vector<hsize_t> dims(piece.box.extent.begin(), piece.box.extent.end());
  const int rank = static_cast<int>(dims.size());
  const Handle space(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dims.data(), nullptr), H5Sclose,
                     action);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, action);
  H5Pset_layout(creation.id(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY);  // without it the offset is not known yet
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.id(), false);  // the same pieces make the same file, whenever
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, action);
  H5Pset_create_intermediate_group(links.id(), 1);
  const Handle dataset(H5Dcreate2(file, name.c_str(), type.id(), space.id(), links.id(), creation.id(), H5P_DEFAULT),
                       H5Dclose, action);
  write_attribute(dataset.id(), "offset", piece.box.offset);
  write_attribute(dataset.id(), "global_shape", piece.shape);
  const haddr_t at = H5Dget_offset(dataset.id());
  if (at == HADDR_UNDEF) hdf5_failed(action);
  return static_cast<int64_t>(at);
}

}  // namespace

ShardLayout lay_out_shard(const std::vector<TensorPiece>& pieces) {
  const QuietHdf5 quiet;
  ShardLayout layout;
  FileImage* image = &layout.image;
  const H5FD_class_t driver_class = image_driver();
  const Handle driver(H5FDregister(&driver_class), H5FDunregister, "registering the image driver");
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "describing the file");
  H5Pset_driver(access.id(), driver.id(), &image);
  H5Pset_alignment(access.id(), 1,
                   static_cast<hsize_t>(FileImage::kPageBytes));  // a larger threshold left files unreadable
  H5Pset_meta_block_size(access.id(), static_cast<hsize_t>(FileImage::kPageBytes) * 16);
  Handle file(H5Fcreate("shard", H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), H5Fclose, "creating the layout");
  std::map<std::string, int64_t> times_seen;
  for (const TensorPiece& piece : pieces) {
    if (piece.box.size() == 0) {
      layout.offsets.push_back(-1);
      continue;
    }
    const int64_t seen = times_seen[piece.name]++;
    const std::string name = seen == 0 ? piece.name : piece.name + "#" + std::to_string(seen);
    layout.offsets.push_back(create_dataset(file.id(), name, piece));
  }
  file.close("finishing the layout");
  return layout;
}

}  // namespace rw
