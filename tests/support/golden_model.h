// A golden model made by transformers (tests/golden/models): its weights, a batch, and what the reference computed.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libcore/formats/model_source.h"
#include "libcore/model/param_layout.h"

namespace rw::golden {

struct Training {
  std::vector<double> losses_f32, losses_f64, grad_norms_f64;  // (steps)
};

struct GoldenModel {
  std::string name;
  ModelSpec spec;
  std::unique_ptr<TensorSource> weights;  // our names
  int64_t steps, batch, seq_len;
  std::vector<int32_t> ids, targets;  // (steps, B, T)
  std::vector<double> logits_f64;     // (B, T, V)
  double logits_f32_error;            // of the reference itself: max |f32 - f64|
  double loss_f64, grad_norm_f64;
  std::vector<double> grad_f64;  // in ParamLayout order
  std::vector<double> grad_f32;
  double lr, beta1, beta2, weight_decay, clip_norm;
  std::map<std::string, Training> training;  // by eps: "1e-08", "0.0001"
  double bf16_loss, bf16_logit_error;
  double bf16_grad_error;           // the reference's worst, relative to the parameter's largest
  std::vector<double> bf16_losses;  // (steps) eps 1e-4
};

const std::vector<std::string>& golden_names();
GoldenModel load_golden(const std::string& name);

// The largest |gradient| of each parameter's layer, the scale its error is measured in.
std::vector<double> layer_scale(const ParamLayout& layout, const std::vector<double>& grad);

}  // namespace rw::golden
