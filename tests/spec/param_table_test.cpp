// The param table against what transformers writes: names, shapes and counts of real files (tests/golden/models).
#include "libcore/spec/param_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/files.h"

namespace rw {
namespace {

const std::filesystem::path kSource = std::getenv("RANKWRIGHT_SOURCE");
const std::vector<std::string> kGoldens = {"gpt2", "llama", "llama_bias", "qwen2"};

std::filesystem::path golden(const std::string& name) { return kSource / "tests" / "golden" / "models" / name; }
ModelSpec config(const std::string& name) { return load_model_spec(kSource / "configs" / "models" / (name + ".json")); }

// Name -> shape of every tensor in a safetensors file, read from its header.
std::map<std::string, Shape> file_shapes(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const Json header = parse_json(std::string_view(bytes).substr(8, header_bytes), file.string());
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : header.items())
    if (name != "__metadata__") shapes[name] = tensor["shape"].get<Shape>();
  return shapes;
}

// Every variation of a small spec that the config keys allow.
std::vector<ModelSpec> varied_specs() {
  std::vector<ModelSpec> specs;
  for (const std::string& name : kGoldens) specs.push_back(load_model_spec(golden(name)));
  ModelSpec untied = specs[0];
  untied.tied_head = false;
  specs.push_back(untied);
  ModelSpec llama = specs[1];
  for (int bits = 0; bits < 8; ++bits) {
    llama.qkv_bias = llama.out_bias = (bits & 1) != 0;
    llama.mlp_bias = (bits & 2) != 0;
    llama.tied_head = (bits & 4) != 0;
    specs.push_back(llama);
  }
  return specs;
}

TEST_CASE("parameter counts are the published ones") {
  const std::map<std::string, int64_t> published = {
      {"gpt2-124m", 124439808},         {"gpt2-355m", 354823168},     {"gpt2-774m", 774030080},
      {"gpt2-1.5b", 1557611200},        {"llama-2-7b", 6738415616},   {"llama-2-13b", 13015864320},
      {"llama-2-70b", 68976648192},     {"llama-3-8b", 8030261248},   {"llama-3-70b", 70553706496},
      {"llama-3.1-405b", 405853388800}, {"llama-3.2-1b", 1235814400}, {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-7b", 7615616512},       {"qwen2.5-72b", 72706203648}};
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    CHECK(n_params(config(name)) == count);
  }
}

TEST_CASE("the models for CPUs are small") {
  for (const char* name : {"tiny-gpt2", "tiny-llama", "tiny-qwen2"}) {
    CAPTURE(name);
    const int64_t n = n_params(config(name));
    CHECK(n > 100'000);
    CHECK(n < 600'000);
  }
  const int64_t n = n_params(config("kjv-llama-6m"));
  CHECK(n > 3'000'000);
  CHECK(n < 10'000'000);
}

TEST_CASE("file names and shapes are those of the files transformers writes, none missing and none left over") {
  for (const std::string& name : kGoldens) {
    CAPTURE(name);
    std::map<std::string, Shape> in_file = file_shapes(golden(name) / "model.safetensors");
    const ModelSpec spec = load_model_spec(golden(name));
    int64_t elements = 0;
    for (const auto& [tensor, shape] : in_file) elements += n_elements(shape);
    CHECK(n_params(spec) == elements);
    CHECK(n_params(spec) == json_int(read_json(golden(name) / "golden.json"), "n_params", name));

    std::set<std::string> used;
    for (const Param& p : param_table(spec)) {
      CAPTURE(p.file_name);
      int found = 0;
      for (const std::string& candidate : file_name_candidates(p))
        if (const auto at = in_file.find(candidate); at != in_file.end()) {
          ++found;
          used.insert(candidate);
          CHECK(at->second == p.file_shape);
        }
      CHECK(found == 1);
    }
    CHECK(used.size() == in_file.size());
  }
}

TEST_CASE("the file boxes of the parameters are disjoint and fill every file tensor") {
  for (const ModelSpec& spec : varied_specs()) {
    std::map<std::string, std::vector<Param>> by_file;
    for (const Param& p : param_table(spec)) by_file[p.file_name].push_back(p);
    for (const auto& [file_name, parts] : by_file) {
      CAPTURE(file_name);
      int64_t covered = 0;
      for (const Param& p : parts) {
        CHECK(p.file_shape == parts[0].file_shape);
        CHECK(contains(p.file_shape, p.file_box));
        CHECK(p.file_box.size() == n_elements(p.shape));
        Shape in_ours = p.file_box.extent;
        if (p.file_transposed) std::reverse(in_ours.begin(), in_ours.end());
        CHECK(in_ours == p.shape);
        covered += p.file_box.size();
        for (const Param& other : parts)
          if (other.name != p.name) CHECK(intersect(p.file_box, other.file_box).size() == 0);
      }
      CHECK(covered == n_elements(parts[0].file_shape));
    }
  }
}

TEST_CASE("names are unique, order is that of memory, q k v and gate up stand next to each other") {
  for (const ModelSpec& spec : varied_specs()) {
    const std::vector<Param> table = param_table(spec);
    std::set<std::string> names;
    for (size_t i = 0; i < table.size(); ++i) {
      const Param& p = table[i];
      CHECK(names.insert(p.name).second);
      if (i == 0) continue;
      const Param& before = table[i - 1];
      CHECK(before.layer <= p.layer);
      if (before.layer == p.layer) CHECK(before.role < p.role);
      if (p.role == ParamRole::k_w) CHECK(before.role == ParamRole::q_w);
      if (p.role == ParamRole::v_w) CHECK(before.role == ParamRole::k_w);
      if (p.role == ParamRole::k_b) CHECK(before.role == ParamRole::q_b);
      if (p.role == ParamRole::v_b) CHECK(before.role == ParamRole::k_b);
      if (p.role == ParamRole::up_w && spec.gated_mlp()) CHECK(before.role == ParamRole::gate_w);
      if (p.role == ParamRole::up_b && spec.gated_mlp()) CHECK(before.role == ParamRole::gate_b);
    }
    CHECK(table.front().role == ParamRole::token_embedding);
    CHECK(table.front().layer == -1);
    CHECK(table.back().layer == spec.layers);
    CHECK((table.back().role == ParamRole::head_w) == !spec.tied_head);
  }
}

TEST_CASE("gpt2's fused and transposed tensors") {
  const ModelSpec spec = load_model_spec(golden("gpt2"));  // C 24, F 53
  std::map<std::string, Param> by_name;
  for (const Param& p : param_table(spec)) by_name[p.name] = p;
  const Param& k = by_name.at("blocks.2.attn.k.weight");
  CHECK(k.file_name == "h.2.attn.c_attn.weight");
  CHECK(k.file_shape == Shape{24, 72});
  CHECK(k.file_box == Box{{0, 24}, {24, 24}});
  CHECK(k.file_transposed);
  CHECK(by_name.at("blocks.2.attn.v.bias").file_box == Box{{48}, {24}});
  const Param& up = by_name.at("blocks.0.mlp.up.weight");
  CHECK(up.shape == Shape{53, 24});
  CHECK(up.file_shape == Shape{24, 53});
  CHECK(up.file_transposed);
  CHECK_FALSE(by_name.at("embed.token.weight").file_transposed);
  CHECK(file_name_candidates(k) ==
        std::vector<std::string>{"h.2.attn.c_attn.weight", "transformer.h.2.attn.c_attn.weight"});
}

TEST_CASE("decay and initial values: matrices decay and are random, norms start at one, biases at zero") {
  for (const ModelSpec& spec : varied_specs()) {
    const double residual_std = spec.init_std / std::sqrt(2.0 * static_cast<double>(spec.layers));
    for (const Param& p : param_table(spec)) {
      CAPTURE(p.name);
      const bool is_matrix = p.shape.size() == 2;
      CHECK(p.decay == is_matrix);
      const bool adds_to_residual = p.role == ParamRole::out_w || p.role == ParamRole::down_w;
      if (is_matrix) {
        CHECK(p.init == Init::normal);
        CHECK(p.init_std == doctest::Approx(adds_to_residual ? residual_std : spec.init_std));
      } else {
        CHECK(p.init == (p.name.ends_with(".bias") ? Init::zeros : Init::ones));
      }
    }
  }
}

}  // namespace
}  // namespace rw
