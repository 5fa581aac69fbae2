// Predictions of published runs, and the calibration that they are predicted with: five numbers for each generation of
// devices and two for each trainer, fitted to the measured step times.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libcore/plan/price/step_time.h"
#include "libcore/plan/price/work_cache.h"
#include "libcore/plan/published/published_rows.h"

namespace rw {

struct PublishedNumbers {
  struct Device {
    double gemm_fraction, attention_fraction, memory_fraction, overlap, misaligned_fraction;
  };
  struct Trainer {
    double compute_factor, communication_factor;
  };
  std::map<std::string, Device> devices;    // by generation: "a100", "h100"
  std::map<std::string, Trainer> trainers;  // by PublishedRow::numbers
};

std::string device_generation(const PublishedRow& row);
// What the shipped files hold.
PublishedNumbers shipped_numbers(const std::vector<PublishedRow>& rows);

// Prices rows again and again: dry runs are done once. The rows outlive it.
class PublishedPricer {
 public:
  explicit PublishedPricer(const std::vector<PublishedRow>& rows);
  StepSeconds step(const PublishedRow& row, const PublishedNumbers& numbers) const;

 private:
  std::map<const PublishedRow*, std::shared_ptr<WorkCache>> works_;
};

struct PublishedFit {
  PublishedNumbers numbers;
  double cost_before = 0, cost = 0;
};
enum class FitScope : uint8_t { all, trainers };  // trainers: the devices' numbers stay
// Least squares of log(predicted / measured) / 3 %, large residuals counting linearly (soft L1), from `start`. Priors
// are weak: a number e times off its centre (1 for trainers) counts as 0.15 to 0.3 of a residual of 3 %. With scope
// all, llm-foundry's two trainers are the references whose factors are 1, and deepspeed's two rows fit its
// compute_factor alone.
PublishedFit fit_published(const PublishedPricer& pricer, const std::vector<const PublishedRow*>& rows,
                           const PublishedNumbers& start, FitScope scope = FitScope::all);

}  // namespace rw
