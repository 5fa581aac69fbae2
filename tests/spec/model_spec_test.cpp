#include "libcore/spec/model_spec.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = std::getenv("RANKWRIGHT_SOURCE");

ModelSpec parse(const std::string& text) {
  return parse_model_spec(parse_json(text, "here/config.json"), "here/config.json");
}

// The message of the Error{input} that `text` gives.
std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  FAIL("accepted: " << text);
  return {};
}

void check_mentions(const std::string& message, const std::vector<std::string>& parts) {
  CAPTURE(message);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

TEST_CASE("absent keys take transformers' defaults") {
  const ModelSpec gpt2 = parse(R"({"model_type": "gpt2"})");
  CHECK(gpt2.vocab_size == 50257);
  CHECK(gpt2.width == 768);
  CHECK(gpt2.layers == 12);
  CHECK(gpt2.kv_heads == 12);
  CHECK(gpt2.head_dim == 64);
  CHECK(gpt2.ffn == 3072);
  CHECK(gpt2.max_position == 1024);
  CHECK(gpt2.norm_eps == 1e-5);
  CHECK(gpt2.tied_head);
  CHECK(gpt2.eos_id == 50256);
  const ModelSpec llama = parse(R"({"model_type": "llama"})");
  CHECK(llama.vocab_size == 32000);
  CHECK(llama.ffn == 11008);
  CHECK(llama.kv_heads == 32);
  CHECK(llama.max_position == 2048);
  CHECK(llama.norm_eps == 1e-6);
  CHECK(llama.rope_theta == 10000.0);
  CHECK_FALSE(llama.qkv_bias);
  CHECK_FALSE(llama.tied_head);
  CHECK(llama.bos_id == 1);
  CHECK(llama.eos_id == 2);
  const ModelSpec qwen2 = parse(R"({"model_type": "qwen2"})");
  CHECK(qwen2.vocab_size == 151936);
  CHECK(qwen2.ffn == 22016);
  CHECK(qwen2.max_position == 32768);
  CHECK(qwen2.qkv_bias);
  CHECK_FALSE(qwen2.out_bias);
  CHECK(qwen2.eos_id == -1);
}

TEST_CASE("older and newer spellings of the same model are the same") {
  const std::string older = R"({"model_type": "llama", "torch_dtype": "bfloat16", "max_position_embeddings": 131072,
      "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";
  const std::string newer = R"({"model_type": "llama", "dtype": "bfloat16", "max_position_embeddings": 131072,
      "rope_parameters": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";
  CHECK(parse(older) == parse(newer));
  CHECK(parse(older).rope_scaling == RopeScaling::llama3);
  CHECK(parse(older).rope_factor == 8.0);
  CHECK(parse(older).rope_original_max_position == 8192);
  CHECK(parse(older).rope_theta == 500000.0);
  const ModelSpec linear = parse(R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2}})");
  CHECK(linear.rope_scaling == RopeScaling::linear);
  CHECK(linear.rope_factor == 2.0);
  CHECK(parse(R"({"model_type": "llama", "rope_scaling": null})") == parse(R"({"model_type": "llama"})"));
  CHECK(parse(R"({"model_type": "gpt2", "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 2})") ==
        parse(R"({"model_type": "gpt2", "n_embd": 96, "n_layer": 3, "n_head": 2})"));
}

TEST_CASE("special ids: lists, nulls, and customary ids that a small vocabulary does not hold") {
  CHECK(parse(R"({"model_type": "llama", "eos_token_id": [7, 8]})").eos_id == 7);
  const ModelSpec three = parse(R"({"model_type": "llama", "eos_token_id": [7, 8, 9]})");
  CHECK(three.other_eos_ids == std::vector<int64_t>{8, 9});
  for (int64_t id = -1; id < 12; ++id) CHECK(three.ends_text(id) == (id >= 7 && id <= 9));
  CHECK(parse(model_config_json(three).dump()) == three);
  CHECK(parse(R"({"model_type": "llama", "eos_token_id": []})").eos_id == -1);
  CHECK_FALSE(parse(R"({"model_type": "llama", "eos_token_id": []})").ends_text(-1));
  CHECK(parse(R"({"model_type": "llama", "eos_token_id": null})").eos_id == -1);
  CHECK(parse(R"({"model_type": "llama", "eos_token_id": -1})").eos_id == -1);
  CHECK(parse(R"({"model_type": "gpt2", "vocab_size": 67})").eos_id == -1);
  CHECK(parse(R"({"model_type": "gpt2", "vocab_size": 67, "eos_token_id": 50256})").eos_id == -1);
  check_mentions(refusal(R"({"model_type": "gpt2", "eos_token_id": "</s>"})"), {"eos_token_id", "integer"});
}

TEST_CASE("qwen2's sliding window is refused only where it binds") {
  const auto qwen2 = [](const std::string& more) {
    return R"({"model_type": "qwen2", "num_hidden_layers": 4)" + more + "}";
  };
  CHECK(parse(qwen2(R"(, "use_sliding_window": false, "sliding_window": 5, "max_window_layers": 0)")).layers == 4);
  CHECK(parse(qwen2(R"(, "use_sliding_window": true, "sliding_window": 5, "max_window_layers": 4)")).layers == 4);
  CHECK(parse(qwen2(R"(, "use_sliding_window": true, "sliding_window": 32768, "max_window_layers": 0)")).layers == 4);
  CHECK(parse(qwen2(R"(, "use_sliding_window": true, "layer_types": ["full_attention"], "max_window_layers": 0)"))
            .layers == 4);
  check_mentions(refusal(qwen2(R"(, "use_sliding_window": true, "sliding_window": 5, "max_window_layers": 3)")),
                 {"here/config.json", "use_sliding_window", "32768", "5"});
  refusal(qwen2(R"(, "use_sliding_window": true, "layer_types": ["full_attention", "sliding_attention"])"));
  refusal(qwen2(R"(, "use_sliding_window": true, "layer_types": "odd")"));
}

TEST_CASE("what we do not compute is refused: file, key, expected and found are named") {
  struct Case {
    std::string keys;
    std::vector<std::string> mentions;
  };
  const std::vector<Case> cases = {
      {R"("model_type": "mixtral")", {"model_type", "gpt2, llama or qwen2", "mixtral"}},
      {R"("vocab_size": 5)", {"model_type", "missing"}},
      {R"("model_type": 7)", {"model_type", "string", "7"}},
      {R"("model_type": "gpt2", "activation_function": "relu")", {"activation_function", "gelu_new", "relu"}},
      {R"("model_type": "gpt2", "activation_function": "gelu")", {"activation_function", "gelu_new"}},
      {R"("model_type": "gpt2", "scale_attn_weights": false)", {"scale_attn_weights", "true", "false"}},
      {R"("model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true)", {"scale_attn_by_inverse_layer_idx"}},
      {R"("model_type": "gpt2", "add_cross_attention": true)", {"add_cross_attention"}},
      {R"("model_type": "gpt2", "n_head": 7)", {"n_embd", "multiple of the 7", "768"}},
      {R"("model_type": "gpt2", "n_layer": 0)", {"n_layer", "0"}},
      {R"("model_type": "gpt2", "layer_norm_epsilon": 0)", {"layer_norm_epsilon", "above 0"}},
      {R"("model_type": "llama", "hidden_act": "gelu")", {"hidden_act", "silu", "gelu"}},
      {R"("model_type": "llama", "hidden_size": -8)", {"hidden_size", "-8"}},
      {R"("model_type": "llama", "hidden_size": "wide")", {"hidden_size", "integer", "wide"}},
      {R"("model_type": "llama", "hidden_size": 4096.5)", {"hidden_size", "integer", "4096.5"}},
      {R"("model_type": "llama", "hidden_size": 99999999999999999999)", {"hidden_size", "integer"}},
      {R"("model_type": "llama", "vocab_size": 9000000000000)", {"vocab_size", "9000000000000"}},
      {R"("model_type": "llama", "num_key_value_heads": 5)", {"num_key_value_heads", "divisor", "32", "5"}},
      {R"("model_type": "llama", "num_key_value_heads": 64)", {"num_key_value_heads", "64"}},
      {R"("model_type": "llama", "head_dim": 15)", {"head_dim", "even", "15"}},
      {R"("model_type": "llama", "rope_theta": -1)", {"rope_theta", "above 0", "-1"}},
      {R"("model_type": "llama", "rope_scaling": "llama3")", {"rope_scaling", "object"}},
      {R"("model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 2})", {"rope_type", "yarn", "llama3"}},
      {R"("model_type": "llama", "rope_scaling": {"rope_type": "linear"})", {"factor", "missing"}},
      {R"("model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": null})", {"factor", "null"}},
      {R"("model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 2, "low_freq_factor": 4})",
       {"high_freq_factor", "low_freq_factor"}},
      {R"("model_type": "llama", "rope_parameters": {"partial_rotary_factor": 0.5})", {"partial_rotary_factor", "0.5"}},
      {R"("model_type": "llama", "initializer_range": -0.02)", {"initializer_range", "-0.02"}},
      {R"("model_type": "llama", "tie_word_embeddings": "yes")", {"tie_word_embeddings", "yes"}},
      {R"("model_type": "llama", "quantization_config": {"bits": 4})", {"quantization_config"}},
      {R"("model_type": "llama", "hidden_size": 8388608, "num_attention_heads": 1024, "num_hidden_layers": 65536)",
       {"parameters", "e+"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.keys);
    const std::string message = refusal("{" + c.keys + "}");
    check_mentions(message, c.mentions);
    check_mentions(message, {"here/config.json", "expected"});
  }
  check_mentions(refusal("[1, 2]"), {"here/config.json", "object", "array"});
}

TEST_CASE("a spec written as config.json reads back the same, for every model we ship") {
  int models = 0;
  for (const fs::path& folder : {kSource / "configs" / "models", kSource / "tests" / "golden" / "models"})
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (!entry.is_directory() && entry.path().extension() != ".json") continue;
      CAPTURE(entry.path().string());
      const ModelSpec spec = load_model_spec(entry.path());
      const std::string text = model_config_json(spec).dump();
      CHECK(parse(text) == spec);
      CHECK(model_identity(parse(text)) == model_identity(spec));
      ++models;
    }
  CHECK(models >= 22);
}

TEST_CASE("the identity changes with what is computed and with nothing else") {
  const ModelSpec base = load_model_spec(kSource / "tests" / "golden" / "models" / "llama");
  const auto changed = [&](auto change) {
    ModelSpec spec = base;
    change(spec);
    CHECK(spec != base);
    return model_identity(spec) != model_identity(base);
  };
  CHECK(changed([](ModelSpec& s) { s.vocab_size += 1; }));
  CHECK(changed([](ModelSpec& s) { s.layers += 1; }));
  CHECK(changed([](ModelSpec& s) { s.kv_heads = 1; }));
  CHECK(changed([](ModelSpec& s) { s.norm_eps = 2e-5; }));
  CHECK(changed([](ModelSpec& s) { s.rope_theta = 501.0; }));
  CHECK(changed([](ModelSpec& s) { s.rope_factor = 5.0; }));
  CHECK(changed([](ModelSpec& s) { s.rope_original_max_position = 33; }));
  CHECK(changed([](ModelSpec& s) { s.rope_scaling = RopeScaling::linear; }));
  CHECK(changed([](ModelSpec& s) { s.tied_head = true; }));
  CHECK(changed([](ModelSpec& s) { s.mlp_bias = true; }));
  CHECK_FALSE(changed([](ModelSpec& s) { s.init_std = 0.5; }));
  CHECK_FALSE(changed([](ModelSpec& s) { s.eos_id = 9; }));
  CHECK_FALSE(changed([](ModelSpec& s) { s.max_position = 128; }));
  ModelSpec gpt2 = load_model_spec(kSource / "tests" / "golden" / "models" / "gpt2"), longer = gpt2;
  longer.max_position += 1;
  CHECK(model_identity(gpt2) != model_identity(longer));
}

TEST_CASE("a model is found by file, by directory and by name") {
  const fs::path configs = kSource / "configs";
  REQUIRE(setenv("RANKWRIGHT_CONFIGS", configs.c_str(), 1) == 0);
  const ModelSpec by_file = load_model_spec(configs / "models" / "gpt2-124m.json");
  CHECK(load_model_spec("gpt2-124m") == by_file);
  CHECK(load_model_spec("gpt2-124m.json") == by_file);
  CHECK(load_model_spec(kSource / "tests" / "golden" / "models" / "gpt2").width == 24);
  CHECK(load_model_spec(kSource / "tests" / "golden" / "models" / "gpt2" / "config.json").width == 24);

  const auto message = [](const fs::path& path) {
    try {
      load_model_spec(path);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::input);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  check_mentions(message("gpt2-125m"),
                 {"gpt2-125m", "did you mean gpt2-124m", "known names", "llama-3-8b", "qwen2.5-72b"});
  check_mentions(message("no/such/place"), {"no/such/place", "config.json"});
  check_mentions(message("../models/gpt2-124m"), {"../models/gpt2-124m", "expected"});
  check_mentions(message(""), {"expected"});
  check_mentions(message(kSource / "libcore"), {"libcore", "config.json"});
  REQUIRE(setenv("RANKWRIGHT_CONFIGS", "/nowhere", 1) == 0);
  check_mentions(message("gpt2-124m"), {"gpt2-124m", "RANKWRIGHT_CONFIGS"});

  const fs::path damaged = fs::temp_directory_path() / fmt::format("rw-spec-{}.json", ::getpid());
  write_file_atomic(damaged, "{\"model_type\": ");
  check_mentions(message(damaged), {damaged.string(), "JSON"});
  fs::remove(damaged);
  REQUIRE(unsetenv("RANKWRIGHT_CONFIGS") == 0);
}

TEST_CASE("without the variable, names are found beside an executable inside the tree") {
  // The test program may be built anywhere, so the law is checked for the tree it was built in.
  const fs::path self = fs::read_symlink("/proc/self/exe");
  bool inside = false;
  for (fs::path at = self.parent_path(); at != at.root_path(); at = at.parent_path()) inside = inside || at == kSource;
  if (inside) CHECK(load_model_spec("tiny-llama").layers == 4);
  CHECK(std::string(family_name(Family::qwen2)) == "qwen2");
}

}  // namespace
}  // namespace rw
