// What differs between two checkpoints, runs (their newest) or Hugging Face directories.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "libcore/tensor/tensor_compare.h"

namespace rw {

// A key whose values differ, as JSON texts; empty where the key is missing (which is no difference when a side is a
// Hugging Face directory). Keys of nested objects are joined by dots.
struct KeyDifference {
  std::string key, a, b;
};

struct TensorDifference {
  enum class Kind : uint8_t { only_in_a, only_in_b, shape, dtype, values };  // dtype: the numbers are the same
  Kind kind;
  std::string name;
  std::optional<TensorInfo> a, b;
  TensorComparison comparison;  // kinds dtype and values
  // Where the side is a checkpoint: pieces of the tensor that do not have the digests of their manifest. What differs
  // is then the disk's doing.
  std::vector<std::string> damage;
};

struct DiffSide {
  std::filesystem::path dir;  // the checkpoint that was meant
  int64_t step = -1;          // -1: not a checkpoint
};

struct CheckpointDiff {
  DiffSide a, b;
  std::vector<KeyDifference> identity, layout, hyper_parameters, state;
  std::vector<TensorDifference> tensors;  // those that differ beyond the tolerance
  int64_t n_equal = 0, n_within = 0;      // the others: equal, and different within the tolerance
  int64_t n_left_out = 0;                 // optimizer tensors, when one side is a Hugging Face directory
};

struct DiffOptions {
  // Accepted max |a - b| as a share of the tensor's largest |a| or |b|. Above 0 the dtypes may differ.
  double tolerance = 0;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes read, from several threads; may be null
};

// All bytes of the tensors of both are read, in parts of a few MiB. Error{input} when a side cannot be opened.
CheckpointDiff diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b,
                                const DiffOptions& options);

}  // namespace rw
