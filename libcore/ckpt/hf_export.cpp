#include <cmath>
#include <map>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/ckpt/elements.h"
#include "libcore/ckpt/hf_layout.h"
#include "libcore/ckpt/read_check.h"

namespace rw {

namespace {

constexpr float kLargestF16 = 65504.0f;

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

void check_fits_f16(const float* values, int64_t n, const std::string& name, const std::string& where) {
  for (int64_t i = 0; i < n; ++i) {
    if (std::isfinite(values[i]) && std::abs(values[i]) > kLargestF16) {
      fail(ErrorKind::input, "{}: tensor {}: expected values within f16's {}, found {}: export as bf16 or f32", where,
           name, kLargestF16, values[i]);
    }
  }
}

// dst holds the whole file tensor as `dtype`.
void assemble(const FileTensor& tensor, const TensorSource& weights, DType dtype, void* dst) {
  std::vector<float> ours, turned;
  std::vector<char> converted;
  for (const Param& p : tensor.parts) {
    const int64_t n = n_elements(p.shape);
    ours.resize(static_cast<size_t>(n));
    weights.read(p.name, whole(p.shape), DType::f32, ours.data());
    if (dtype == DType::f16) check_fits_f16(ours.data(), n, p.name, weights.where());
    const float* in_file_order = ours.data();
    if (p.file_transposed) {
      turned.resize(static_cast<size_t>(n));
      transpose_elements(ours.data(), p.shape[0], p.shape[1], sizeof(float), turned.data());
      in_file_order = turned.data();
    }
    converted.resize(static_cast<size_t>(n * dtype_bytes(dtype)));
    convert_elements(in_file_order, DType::f32, converted.data(), dtype, n);
    copy_part(p.file_box, {converted.data(), dtype, p.file_box}, dst, dtype, whole(tensor.shape));
  }
}

}  // namespace

std::vector<ExportTensor> hf_tensors(const std::vector<Param>& params, const TensorSource& weights, DType dtype) {
  for (const Param& p : params) check_read(weights, p.name, whole(p.shape), DType::f32);
  std::vector<ExportTensor> list;
  for (FileTensor& tensor : group_by_file_tensor(params)) {
    const std::string name = tensor.name;
    const Shape shape = tensor.shape;
    list.push_back({name, dtype, shape, [tensor = std::move(tensor), &weights, dtype](void* dst) {
                      assemble(tensor, weights, dtype, dst);
                    }});
  }
  return list;
}

}  // namespace rw
