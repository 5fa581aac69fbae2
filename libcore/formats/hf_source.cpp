#include <algorithm>
#include <set>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/formats/hf_layout.h"
#include "libcore/tensor/elements.h"
#include "libcore/tensor/read_check.h"

namespace rw {

namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

const TensorInfo& find_param(const TensorSource& file, const Param& p) {
  const std::vector<std::string> candidates = file_name_candidates(p);
  for (const std::string& name : candidates) {
    const TensorInfo* info = file.find(name);
    if (info == nullptr) continue;
    if (info->shape != p.file_shape) {
      fail(ErrorKind::input, "{}: tensor {} (our {}): expected shape {}, found {}: is config.json of another model?",
           file.where(), name, p.name, shape_text(p.file_shape), shape_text(info->shape));
    }
    return *info;
  }
  std::vector<std::string> present, near;
  for (const TensorInfo& info : file.tensors()) present.push_back(info.name);
  for (const std::string& name : candidates) {
    const std::string found = nearest(name, present);
    if (!found.empty() && std::find(near.begin(), near.end(), found) == near.end()) near.push_back(found);
  }
  fail(ErrorKind::input, "{}: parameter {}: expected a tensor named {}, found none among {}{}", file.where(), p.name,
       quoted(candidates), present.size(), near.empty() ? "" : "; nearest: " + quoted(near));
}

// Not parameters: masks and tables that some versions of transformers saved along.
bool known_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

HfSource::HfSource(std::unique_ptr<TensorSource> file, const std::vector<Param>& params) : file_(std::move(file)) {
  std::set<std::string> used;
  bool head = false;
  std::vector<const Param*> order;
  for (const Param& p : params) order.push_back(&p);
  std::sort(order.begin(), order.end(), [](const Param* a, const Param* b) { return a->name < b->name; });
  for (const Param* p : order) {
    const TensorInfo& info = find_param(*file_, *p);
    tensors_.push_back({p->name, info.dtype, p->shape});
    places_.push_back({info.name, p->file_box, p->file_transposed});
    used.insert(info.name);
    head = head || p->role == ParamRole::head_w;
  }
  for (const TensorInfo& info : file_->tensors()) {
    const bool tied_copy = !head && info.name == "lm_head.weight";
    if (!used.contains(info.name) && !known_buffer(info.name) && !tied_copy) unused_.push_back(info.name);
  }
}

void HfSource::read(const std::string& name, const Box& box, DType dst_type, void* dst) const {
  const TensorInfo& info = check_read(*this, name, box, dst_type);
  const Place& place = places_[static_cast<size_t>(&info - tensors_.data())];
  Box in_file = place.transposed ? Box{{box.offset[1], box.offset[0]}, {box.extent[1], box.extent[0]}} : box;
  for (size_t i = 0; i < in_file.offset.size(); ++i) in_file.offset[i] += place.file_box.offset[i];
  if (!place.transposed) return file_->read(place.file_name, in_file, dst_type, dst);
  const int64_t bytes = dtype_bytes(dst_type);
  std::vector<char> turned(static_cast<size_t>(box.size() * bytes));
  file_->read(place.file_name, in_file, dst_type, turned.data());
  transpose_elements(turned.data(), in_file.extent[0], in_file.extent[1], bytes, dst);
}

}  // namespace rw
