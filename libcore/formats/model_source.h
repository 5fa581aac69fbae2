// A model from wherever it lies: a run, a checkpoint, a Hugging Face directory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "libcore/ckpt/checkpoint.h"
#include "libcore/spec/model_spec.h"
#include "libcore/tensor/source.h"

namespace rw {

struct ModelSource {
  ModelSpec spec;
  std::unique_ptr<TensorSource> weights;  // our names; a checkpoint also has adam.m/NAME and adam.v/NAME
  std::string config_json;                // the Hugging Face config.json's text
  std::string tokenizer_json;             // empty when not known
  std::string tokenizer_config_json;      // the same (chat template, names of special tokens)
  int64_t step = -1;                      // -1: not a checkpoint
  std::vector<std::string> unused;        // tensors of a Hugging Face file that are no parameter
  std::filesystem::path checkpoint;       // its directory; empty: not a checkpoint
  std::string identity, state;            // of a checkpoint, JSON texts; empty otherwise
};

// A checkpoint's identity holds "model_config" (a config.json's object) and "tokenizer_json" and, where there
// is one, "tokenizer_config_json" (their texts); its weights
// have the param table's names. All parameters are there with their shapes, or Error{input} says which is not.
// Of a run or a checkpoints directory the newest committed checkpoint is meant. Every byte of a checkpoint, and of the
// weights that rankwright.json of a Hugging Face directory knows, is compared with its digest: Error{verdict} on
// damage.
ModelSource open_model_source(const std::filesystem::path& path);
// A Hugging Face directory as it lies there, without that comparison.
ModelSource open_huggingface(const std::filesystem::path& dir);

}  // namespace rw
