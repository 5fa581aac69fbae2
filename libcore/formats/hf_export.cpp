#include <map>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/formats/hf_layout.h"
#include "libcore/tensor/elements.h"
#include "libcore/tensor/read_check.h"

namespace rw {

namespace {

struct FileTensor {
  std::string name;
  Shape shape;
  std::vector<Param> parts;
};

std::vector<FileTensor> group_by_file_tensor(const std::vector<Param>& params) {
  std::vector<FileTensor> list;
  std::map<std::string, size_t> index;
  for (const Param& p : params) {
    const auto [at, fresh] = index.try_emplace(p.file_name, list.size());
    if (fresh) list.push_back({p.file_name, p.file_shape, {}});
    FileTensor& tensor = list[at->second];
    CHECK(tensor.shape == p.file_shape, "%s: two shapes in the param table", p.file_name.c_str());
    tensor.parts.push_back(p);
  }
  for (const FileTensor& tensor : list) {
    int64_t covered = 0;
    for (const Param& p : tensor.parts) covered += p.file_box.size();
    CHECK(covered == n_elements(tensor.shape), "%s: parameters cover %lld elements of %s", tensor.name.c_str(),
          static_cast<long long>(covered), shape_text(tensor.shape).c_str());
  }
  return list;
}

// dst holds these rows of the file tensor as `dtype`.
void assemble(const FileTensor& tensor, const TensorSource& weights, DType dtype, const Box& rows, void* dst) {
  std::vector<float> ours, turned;
  std::vector<char> converted;
  for (const Param& p : tensor.parts) {
    const Box part = intersect(p.file_box, rows);
    const int64_t n = part.size();
    if (n == 0) continue;
    Box box = part;
    for (size_t d = 0; d < box.offset.size(); ++d) box.offset[d] -= p.file_box.offset[d];
    if (p.file_transposed) {
      std::swap(box.offset[0], box.offset[1]);
      std::swap(box.extent[0], box.extent[1]);
    }
    ours.resize(static_cast<size_t>(n));
    weights.read(p.name, box, DType::f32, ours.data());
    if (dtype == DType::f16) check_fits_f16(ours.data(), n, p.name, weights.where());
    const float* in_file_order = ours.data();
    if (p.file_transposed) {
      turned.resize(static_cast<size_t>(n));
      transpose_elements(ours.data(), box.extent[0], box.extent[1], sizeof(float), turned.data());
      in_file_order = turned.data();
    }
    converted.resize(static_cast<size_t>(n * dtype_bytes(dtype)));
    convert_elements(in_file_order, DType::f32, converted.data(), dtype, n);
    copy_part(part, {converted.data(), dtype, part}, dst, dtype, rows);
  }
}

}  // namespace

std::vector<ExportTensor> hf_tensors(const std::vector<Param>& params, const TensorSource& weights, DType dtype) {
  for (const Param& p : params) check_read(weights, p.name, whole(p.shape), DType::f32);
  std::vector<ExportTensor> list;
  for (FileTensor& tensor : group_by_file_tensor(params)) {
    const std::string name = tensor.name;
    const Shape shape = tensor.shape;
    list.push_back({name, dtype, shape, [tensor = std::move(tensor), &weights, dtype](const Box& rows, void* dst) {
                      assemble(tensor, weights, dtype, rows, dst);
                    }});
  }
  return list;
}

}  // namespace rw
