// The ops of a training step and of serving at a model's shapes, ready to run and priced by cost().
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "libcore/device/arena.h"
#include "libcore/device/device.h"
#include "libcore/spec/model_spec.h"

namespace rw {

struct KernelCase {
  Cost cost;
  std::function<void()> run;
  std::shared_ptr<Arena> memory;  // what run works on
};
// Makes a case and its memory; made one at a time, because a large model's operands do not fit side by side.
struct KernelCaseMaker {
  std::string op, shape;  // "gemm qkv", "2048 x 2304 x 768"
  DType t = DType::f32;   // of the activations
  std::function<KernelCase()> make;
};

struct KernelShapes {
  ModelSpec model;
  int64_t rows = 2048;      // T of training
  int64_t seq_len = 512;    // of training's sequences; divides rows
  int64_t requests = 16;    // sequences that decode one token each
  int64_t context = 512;    // tokens of each of them
  int64_t head_rows = 512;  // rows of logits at a time
};
struct KernelSetting {
  Device& device;
  DType t;
};
// In the order of a step. Ops that work on f32 whatever the precision (adamw, sum_squares) come with f32 alone.
std::vector<KernelCaseMaker> kernel_cases(const KernelShapes& shapes, const KernelSetting& setting);

}  // namespace rw
