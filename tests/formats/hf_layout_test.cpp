#include "libcore/formats/hf_layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "libcore/base/error.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

// Weights in memory, by our names or a file's.
class MemorySource : public TensorSource {
 public:
  std::string where() const override { return "memory"; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, DType dst_type, void* dst) const override {
    REQUIRE(dst_type == DType::f32);
    const TensorInfo* info = find(name);
    REQUIRE(info != nullptr);
    elements_read_ += box.size();
    const std::vector<float>& values = data_.at(name);
    for_each_run(box, whole(info->shape), box, [&](int64_t from, int64_t to, int64_t n) {
      std::memcpy(static_cast<float*>(dst) + to, values.data() + from, static_cast<size_t>(n) * 4);
    });
  }
  void add(const std::string& name, const Shape& shape, std::vector<float> values) {
    tensors_.push_back({name, DType::f32, shape});
    std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    data_[name] = std::move(values);
  }
  std::vector<float>& values(const std::string& name) { return data_.at(name); }
  int64_t elements_read() const { return elements_read_; }

 private:
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::vector<float>> data_;
  mutable int64_t elements_read_ = 0;
};

ModelSpec spec_of(Family family, bool tied) {
  ModelSpec s;
  s.family = family;
  s.vocab_size = 37;
  s.width = 20;
  s.layers = 2;
  s.heads = 5;
  s.kv_heads = family == Family::gpt2 ? 5 : 1;
  s.head_dim = 4;
  s.ffn = 29;
  s.max_position = 11;
  s.qkv_bias = family != Family::llama;
  s.out_bias = s.mlp_bias = family == Family::gpt2;
  s.tied_head = tied;
  return s;
}

std::unique_ptr<MemorySource> random_weights(const std::vector<Param>& params) {
  auto source = std::make_unique<MemorySource>();
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (const Param& p : params) {
    std::vector<float> values(static_cast<size_t>(n_elements(p.shape)));
    for (float& x : values) x = normal(random);
    source->add(p.name, p.shape, std::move(values));
  }
  return source;
}

// The file as it would be read: every exported tensor in memory under its file name.
std::unique_ptr<MemorySource> exported(const std::vector<Param>& params, const TensorSource& weights) {
  auto file = std::make_unique<MemorySource>();
  for (const ExportTensor& t : hf_tensors(params, weights, DType::f32)) {
    std::vector<float> values(static_cast<size_t>(n_elements(t.shape)));
    t.read(whole(t.shape), values.data());
    file->add(t.name, t.shape, std::move(values));
  }
  return file;
}

std::string import_error(std::unique_ptr<TensorSource> file, const std::vector<Param>& params) {
  try {
    const HfSource source(std::move(file), params);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const Family kFamilies[] = {Family::gpt2, Family::llama, Family::qwen2};

}  // namespace

TEST_CASE("export then import is the identity, whole and by boxes") {
  std::mt19937 random(3);
  for (const Family family : kFamilies) {
    for (const bool tied : {false, true}) {
      const std::vector<Param> params = param_table(spec_of(family, tied));
      const auto weights = random_weights(params);
      const HfSource back(exported(params, *weights), params);
      CHECK(back.unused().empty());
      REQUIRE(back.tensors().size() == params.size());
      for (const Param& p : params) {
        std::vector<float> found(static_cast<size_t>(n_elements(p.shape)));
        back.read(p.name, whole(p.shape), DType::f32, found.data());
        REQUIRE(found == weights->values(p.name));
        for (int i = 0; i < 5; ++i) {
          Box box = whole(p.shape);
          for (size_t d = 0; d < box.extent.size(); ++d) {
            box.offset[d] = static_cast<int64_t>(random() % static_cast<uint64_t>(p.shape[d]));
            box.extent[d] = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(p.shape[d] - box.offset[d]));
          }
          std::vector<float> a(static_cast<size_t>(box.size()) + 1, -7.0f), b = a;
          back.read(p.name, box, DType::f32, a.data());
          weights->read(p.name, box, DType::f32, b.data());
          REQUIRE(a == b);
        }
      }
      CHECK(std::none_of(params.begin(), params.end(),
                         [&](const Param& p) { return tied && p.file_name == "lm_head.weight"; }));
    }
  }
}

TEST_CASE("GPT-2's fused attention weight has q, k and v beside each other, in by out") {
  const ModelSpec spec = spec_of(Family::gpt2, true);
  const std::vector<Param> params = param_table(spec);
  const auto weights = random_weights(params);
  const auto file = exported(params, *weights);
  const std::vector<float>& fused = file->values("h.1.attn.c_attn.weight");  // (C, 3C)
  const int64_t c = spec.width;
  const char* names[] = {"q", "k", "v"};
  for (int64_t part = 0; part < 3; ++part) {
    const std::vector<float>& ours =
        weights->values(std::string("blocks.1.attn.") + names[part] + ".weight");  // (C, C)
    const std::vector<float>& bias = weights->values(std::string("blocks.1.attn.") + names[part] + ".bias");
    for (int64_t out = 0; out < c; ++out) {
      for (int64_t in = 0; in < c; ++in) {
        REQUIRE(fused[static_cast<size_t>(in * 3 * c + part * c + out)] == ours[static_cast<size_t>(out * c + in)]);
      }
      REQUIRE(file->values("h.1.attn.c_attn.bias")[static_cast<size_t>(part * c + out)] ==
              bias[static_cast<size_t>(out)]);
    }
  }
}

TEST_CASE("a box reads only what it needs of the file") {
  const std::vector<Param> params = param_table(spec_of(Family::gpt2, true));
  const auto weights = random_weights(params);
  auto file = exported(params, *weights);
  const MemorySource* counter = file.get();
  const HfSource source(std::move(file), params);
  const int64_t before = counter->elements_read();
  std::vector<float> row(3 * 20);
  source.read("blocks.0.attn.k.weight", {{4, 0}, {3, 20}}, DType::f32, row.data());
  CHECK(counter->elements_read() - before == 3 * 20);
}

TEST_CASE("models that transformers wrote: every tensor comes back bit for bit") {
  for (const char* name : {"gpt2", "llama", "llama_bias", "qwen2"}) {
    INFO(name);
    const fs::path dir = fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "tests/golden/models" / name;
    const std::vector<Param> params = param_table(load_model_spec(dir));
    const auto original = open_safetensors(dir / "model.safetensors");
    const HfSource ours(open_safetensors(dir / "model.safetensors"), params);
    CHECK(ours.unused().empty());
    const ScratchDir out;
    write_safetensors(out.path(), hf_tensors(params, ours, DType::f32),
                      {.max_shard_bytes = int64_t{1} << 14, .memory_bytes = 1});
    const auto written = open_safetensors(out.path());
    CHECK(written->tensors().size() == original->tensors().size());
    for (const TensorInfo& t : written->tensors()) {
      const TensorInfo* first = original->find(t.name);
      if (first == nullptr) first = original->find("transformer." + t.name);
      REQUIRE(first != nullptr);
      CHECK(first->shape == t.shape);
      std::vector<float> a(static_cast<size_t>(n_elements(t.shape))), b = a;
      original->read(first->name, whole(t.shape), DType::f32, a.data());
      written->read(t.name, whole(t.shape), DType::f32, b.data());
      CHECK(std::set<float>(a.begin(), a.end()).size() > 1);
      REQUIRE(a == b);
    }
  }
}

TEST_CASE("missing, misshapen and unused tensors are named") {
  const ModelSpec spec = spec_of(Family::gpt2, true);
  const std::vector<Param> params = param_table(spec);
  const auto weights = random_weights(params);
  const auto rename = [&](const std::string& from, const std::string& to) {
    const auto all = exported(params, *weights);
    auto file = std::make_unique<MemorySource>();
    for (const TensorInfo& t : all->tensors()) file->add(t.name == from ? to : t.name, t.shape, all->values(t.name));
    return file;
  };
  const std::string missing = import_error(rename("ln_f.weight", "ln_x.weight"), params);
  CHECK(has(missing,
            "memory: parameter final_norm.weight: expected a tensor named 'ln_f.weight', "
            "'transformer.ln_f.weight'"));
  CHECK(has(missing, "nearest: 'ln_x.weight'"));

  ModelSpec wider = spec;
  wider.vocab_size = 38;
  CHECK(has(import_error(exported(params, *weights), param_table(wider)),
            "tensor wte.weight (our embed.token.weight): expected shape (38, 20), found (37, 20)"));

  auto file = rename("wpe.weight", "transformer.wpe.weight");
  for (const char* extra : {"h.0.attn.bias", "h.0.attn.masked_bias", "lm_head.weight", "score.weight"})
    file->add(extra, {1}, {0});
  const HfSource source(std::move(file), params);
  CHECK(source.unused() == std::vector<std::string>{"score.weight"});
}

TEST_CASE("an f16 export refuses what f16 cannot hold; bf16 takes it") {
  const std::vector<Param> params = param_table(spec_of(Family::llama, true));
  const auto weights = random_weights(params);
  weights->values("final_norm.weight")[3] = 70000.0f;
  std::string error;
  for (const DType t : {DType::bf16, DType::f16}) {
    for (const ExportTensor& tensor : hf_tensors(params, *weights, t)) {
      std::vector<uint16_t> values(static_cast<size_t>(n_elements(tensor.shape)));
      try {
        tensor.read(whole(tensor.shape), values.data());
      } catch (const Error& e) {
        error += std::string(dtype_name(t)) + " " + e.what();
      }
    }
  }
  CHECK(has(error, "f16 memory: tensor final_norm.weight: expected values within f16's 65504, found 70000"));
  CHECK_FALSE(has(error, "bf16 memory"));
}
