#include "tests/support/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

namespace rw::golden {
namespace {

// The reference's arrays, read without our own safetensors code.
class RawTensors {
 public:
  explicit RawTensors(const std::string& file) : bytes_(read_file(file)) {
    uint64_t header = 0;
    std::memcpy(&header, bytes_.data(), 8);
    json_ = Json::parse(bytes_.substr(8, header));
    data_ = bytes_.data() + 8 + header;
  }
  bool has(const std::string& name) const { return json_.contains(name); }
  template <typename T>
  std::vector<T> array(const std::string& name) const {
    const Json& entry = json_.at(name);
    const size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
    std::vector<T> out((end - begin) / sizeof(T));
    std::memcpy(out.data(), data_ + begin, end - begin);
    return out;
  }

 private:
  std::string bytes_;
  Json json_;
  const char* data_;
};

// A file's tensor, cut and turned into our parameter's orientation.
template <typename T>
void place_param(const Param& p, const std::vector<T>& file, double* dst) {
  const int64_t columns = p.file_shape.size() > 1 ? p.file_shape[1] : 1;
  const int64_t rows_n = p.file_box.extent[0], cols_n = p.file_box.extent.size() > 1 ? p.file_box.extent[1] : 1;
  const int64_t col0 = p.file_box.offset.size() > 1 ? p.file_box.offset[1] : 0;
  for (int64_t r = 0; r < rows_n; ++r)
    for (int64_t c = 0; c < cols_n; ++c) {
      const T value = file[static_cast<size_t>((p.file_box.offset[0] + r) * columns + col0 + c)];
      dst[p.file_transposed ? c * rows_n + r : r * cols_n + c] = static_cast<double>(value);
    }
}

template <typename T>
std::vector<double> gradients(const RawTensors& raw, const ParamLayout& layout, const char* prefix) {
  std::vector<double> out(static_cast<size_t>(layout.total()));
  for (size_t i = 0; i < layout.params().size(); ++i) {
    const Param& p = layout.params()[i];
    for (const std::string& name : file_name_candidates(p))
      if (raw.has(prefix + name)) {
        place_param(p, raw.array<T>(prefix + name), out.data() + layout.slice(i).offset);
        break;
      }
  }
  return out;
}

}  // namespace

const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> names = {"gpt2", "llama", "llama_bias", "qwen2"};
  return names;
}

GoldenModel load_golden(const std::string& name) {
  const char* source = std::getenv("RANKWRIGHT_SOURCE");
  if (source == nullptr)
    fail(ErrorKind::usage, "RANKWRIGHT_SOURCE is not set: expected the source folder; run the tests with `meson test`");
  const std::string dir = std::string(source) + "/tests/golden/models/" + name;
  const Json json = Json::parse(read_file(dir + "/golden.json"));
  const RawTensors raw(dir + "/golden.safetensors");
  ModelSource model = open_model_source(dir);
  const ParamLayout layout(model.spec);
  GoldenModel g{};
  g.name = name;
  g.spec = model.spec;
  g.weights = std::move(model.weights);
  g.steps = json["batch"]["steps"];
  g.batch = json["batch"]["b"];
  g.seq_len = json["batch"]["t"];
  g.ids = raw.array<int32_t>("ids");
  g.targets = raw.array<int32_t>("targets");
  g.logits_f64 = raw.array<double>("logits_f64");
  const std::vector<float> logits_f32 = raw.array<float>("logits");
  for (size_t i = 0; i < logits_f32.size(); ++i)
    g.logits_f32_error = std::max(g.logits_f32_error, std::abs(static_cast<double>(logits_f32[i]) - g.logits_f64[i]));
  g.loss_f64 = json["loss_f64"];
  g.grad_norm_f64 = json["grad_norm_f64"];
  g.grad_f64 = gradients<double>(raw, layout, "grad_f64.");
  g.grad_f32 = gradients<float>(raw, layout, "grad.");
  const Json& adam = json["adamw"];
  g.lr = adam["lr"];
  g.beta1 = adam["beta1"];
  g.beta2 = adam["beta2"];
  g.weight_decay = adam["weight_decay"];
  g.clip_norm = adam["clip_norm"];
  for (const auto& [eps, entry] : json["train"].items())
    g.training[eps] = {.losses_f32 = entry["f32"]["losses"],
                       .losses_f64 = entry["f64"]["losses"],
                       .grad_norms_f64 = entry["f64"]["grad_norms"]};
  g.bf16_loss = json["bf16"]["loss"];
  g.bf16_logit_error = json["bf16"]["logit_error"];
  for (const auto& [_, error] : json["bf16"]["grad_error"].items())
    g.bf16_grad_error = std::max(g.bf16_grad_error, error.get<double>());
  g.bf16_losses = json["bf16"]["train"]["losses"].get<std::vector<double>>();
  return g;
}

std::vector<double> layer_scale(const ParamLayout& layout, const std::vector<double>& grad) {
  std::map<int64_t, double> largest;
  for (size_t i = 0; i < layout.params().size(); ++i) {
    const Range s = layout.slice(i);
    double& scale = largest[layout.params()[i].layer];
    for (int64_t k = s.offset; k < s.offset + s.n; ++k) scale = std::max(scale, std::abs(grad[static_cast<size_t>(k)]));
  }
  std::vector<double> scale;
  for (const Param& p : layout.params()) scale.push_back(largest[p.layer]);
  return scale;
}

}  // namespace rw::golden
