#include "libcore/data/token_hdf5.h"

#include <hdf5.h>

#include "libcore/base/error.h"

namespace rw {
namespace {

herr_t keep_deepest_reason(unsigned, const H5E_error2_t* error, void* reason) {
  if (error->desc != nullptr && *error->desc != '\0') *static_cast<std::string*>(reason) = error->desc;
  return 0;
}

[[noreturn]] void hdf5_failed(const std::filesystem::path& file, const char* action) {
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_deepest_reason, &reason);
  fail(ErrorKind::runtime, "{}: HDF5 cannot {}: {}", file.string(), action, reason);
}

// HDF5 prints every error to stderr by itself; ours say it once, in the exception.
class QuietHdf5 {
 public:
  QuietHdf5() {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  QuietHdf5(const QuietHdf5&) = delete;
  QuietHdf5& operator=(const QuietHdf5&) = delete;
  ~QuietHdf5() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }

 private:
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::filesystem::path& file, const char* action)
      : id_(id), close_(close) {
    if (id < 0) hdf5_failed(file, action);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }
  herr_t close_now() {
    const hid_t id = id_;
    id_ = -1;
    return close_(id);
  }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

int64_t create_dataset(const std::filesystem::path& file, hid_t h5, const char* name, hid_t type, int64_t n) {
  const hsize_t extent = static_cast<hsize_t>(n);
  const Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose, file, "make a data space");
  const Handle plan(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, file, "make a property list");
  // Without early allocation a dataset has no offset until it is written through HDF5.
  H5Pset_layout(plan, H5D_CONTIGUOUS);
  H5Pset_alloc_time(plan, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(plan, H5D_FILL_TIME_NEVER);
  const Handle dataset(H5Dcreate2(h5, name, type, space, H5P_DEFAULT, plan, H5P_DEFAULT), H5Dclose, file,
                       "create a dataset");
  if (n == 0) return kTokenHeaderBytes;  // an empty dataset has no place
  const haddr_t at = H5Dget_offset(dataset);
  if (at == HADDR_UNDEF) hdf5_failed(file, "say where a dataset lies");
  return static_cast<int64_t>(at);
}

void write_attribute(const std::filesystem::path& file, hid_t h5, const Field& field) {
  const auto* number = std::get_if<int64_t*>(&field.value);
  const std::string content = field_text(field);
  const Handle type(H5Tcopy(number != nullptr ? H5T_STD_I64LE : H5T_C_S1), H5Tclose, file, "copy a type");
  if (number == nullptr) {
    H5Tset_size(type, content.size() + 1);
    H5Tset_cset(type, H5T_CSET_UTF8);
  }
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, file, "make a data space");
  const Handle attribute(H5Acreate2(h5, field.name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, file,
                         "create an attribute");
  const void* value = number != nullptr ? static_cast<const void*>(*number) : content.c_str();
  if (H5Awrite(attribute, type, value) < 0) hdf5_failed(file, "write an attribute");
}

}  // namespace

void create_token_hdf5(const std::filesystem::path& file, TokenFacts& facts) {
  // After a close that failed (a full disk) HDF5 1.10 crashes in its exit handler; everything here is closed without
  // it.
  H5dont_atexit();
  const QuietHdf5 quiet;
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, file, "make a property list");
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, file, "make a property list");
  H5Pset_userblock(creation, static_cast<hsize_t>(kTokenHeaderBytes));
  H5Pset_alignment(access, 1, 4096);
  H5Pset_file_locking(access, false, true);  // the file is ours alone, and some network file systems have no locks
  Handle h5(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose, file, "create the file");
  facts.tokens_at =
      create_dataset(file, h5, "tokens", facts.token_type == "u16" ? H5T_STD_U16LE : H5T_STD_I32LE, facts.n_tokens);
  facts.document_offsets_at = create_dataset(file, h5, "document_offsets", H5T_STD_I64LE, facts.n_documents + 1);
  facts.tokenizer_json_at = create_dataset(file, h5, "tokenizer_json", H5T_STD_U8LE, facts.tokenizer_json_bytes);
  for (const Field& field : fields(facts)) write_attribute(file, h5, field);
  if (h5.close_now() < 0) hdf5_failed(file, "write the file");
}

}  // namespace rw
