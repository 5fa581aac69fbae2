#include "tests/faults/recorded.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "libcore/base/files.h"

namespace faults {

namespace fs = std::filesystem;

namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: run through meson test");
  return value;
}

constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257,
 "max_position_embeddings": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 2, "hidden_act": "silu", "rms_norm_eps": 1e-05,
 "attention_bias": false, "mlp_bias": false, "rope_theta": 10000.0, "initializer_range": 0.02,
 "tie_word_embeddings": true})";

}  // namespace

OwnDirectory::OwnDirectory(const fs::path& parent) {
  std::string pattern = (parent / "power_cut_XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error(pattern + " cannot be made");
  path_ = pattern;
}

OwnDirectory::~OwnDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Workplace::Workplace()
    : here_(fs::canonical(fs::temp_directory_path())),
      fast_(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : here_.path()) {
  std::ofstream(*this / "nano.json") << kModel;
  std::ofstream text(*this / "text.txt");
  for (int i = 0; i < 400; ++i) text << "line " << i << " and its square " << i * i << ".\n";
  text.close();
  if (run("$BIN/dtrain prepare --input text.txt --tokenizer bytes --output data.h5") != 0)
    throw std::runtime_error(log());
}

int Workplace::run(const std::string& command) const {
  std::ofstream script(*this / "script");
  script << "BIN=" << setting("RANKWRIGHT_BUILD") << "/tools\n"
         << "FAULTS=" << setting("RANKWRIGHT_BUILD") << "/tests/faults\n"
         << "DTRAIN=\"$BIN/dtrain --model nano.json --data data.h5 --seq-len 16 --micro-batch 1 --warmup-steps 1 "
            "--lr-schedule constant --precision f32 --threads 1 --peak-flops 1e12 --comm-timeout 20\"\n"
         << "SHIM=\"env LD_PRELOAD=$FAULTS/libfault_shim.so\"\n"
         << "export RANKWRIGHT_CONFIGS=" << setting("RANKWRIGHT_SOURCE") << "/configs\n"
         << "cd " << here_.path().string() << " && . " << setting("RANKWRIGHT_SOURCE") << "/scripts/mpi_env\n"
         << command << "\n";
  script.close();
  const std::string here = here_.path().string();
  const int status = std::system(("timeout 60 bash " + here + "/script >" + here + "/log 2>&1 </dev/null").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<Operation> Workplace::record(const fs::path& root, const std::string& command, int code) const {
  const fs::path file = *this / "record";
  fs::remove(file);
  const int got = run("export RANKWRIGHT_FAULT_DIR=" + root.string() + " RANKWRIGHT_FAULT_RECORD=" + file.string() +
                      "\n" + command);
  if (got != code) throw std::runtime_error("exit " + std::to_string(got) + ": " + command + "\n" + log());
  return parse_record(rw::read_file(file));
}

std::string Workplace::log() const { return rw::read_file(*this / "log"); }

}  // namespace faults
