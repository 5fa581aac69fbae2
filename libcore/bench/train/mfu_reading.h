// What an MFU means: good, or wrong, or nothing by itself.
#pragma once
#include <string>

namespace rw {

// Shares of a step's seconds on rank 0.
struct MfuFacts {
  double mfu = 0;  // attention counted in full
  bool is_gpu = false;
  double params = 0;
  double compute = 0, communication = 0, bubble = 0, data = 0, checkpoint = 0;
  double roofline = 0;  // of the seconds of compute, those that the roofline of its ops allows; NaN: unknown
};
constexpr double kGoodMfu = 0.45, kWrongMfu = 0.30;  // of large models on GPUs
constexpr double kLargeModel = 1e9;                  // parameters

// One line. For large models on GPUs 45 to 55 % is good (Chowdhery et al. 2022, Narayanan et al. 2021, and what
// frameworks publish since), under 30 % something is wrong; elsewhere it says what limits instead.
std::string mfu_reading(const MfuFacts& facts);

}  // namespace rw
