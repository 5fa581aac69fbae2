#include "libcore/plan/measure/kernel_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/base/json.h"

namespace rw {
namespace {

struct Peaks {
  std::map<std::string, double> gflop_per_s;  // by element type
  double copy_gb_per_s = 0;
};

Peaks read_peaks(const Json& line, const std::string& where) {
  const auto peak = line.find("peak_gflop_per_s");
  if (peak == line.end() || !peak->is_object())
    fail(ErrorKind::input, "{}: expected the peaks that dbench kernels --json prints first, found no peak_gflop_per_s",
         where);
  Peaks peaks{.copy_gb_per_s = json_number(line, "copy_gb_per_s", where)};
  for (const char* type : {"f32", "bf16"}) peaks.gflop_per_s[type] = json_number(*peak, type, where);
  if (!(peaks.copy_gb_per_s > 0) || !(peaks.gflop_per_s["f32"] > 0) || !(peaks.gflop_per_s["bf16"] > 0))
    fail(ErrorKind::input, "{}: expected peaks above 0", where);
  return peaks;
}

double mean(const std::map<std::string, double>& of_type) {
  double sum = 0;
  for (const auto& [type, value] : of_type) sum += value;
  return of_type.empty() ? 0 : std::min(1.0, sum / static_cast<double>(of_type.size()));
}

}  // namespace

KernelFractions read_kernel_results(const std::string& text, const std::string& where) {
  KernelFractions fractions;
  Peaks peaks;
  std::map<std::string, double> gemm, attention;  // the best share, by element type
  std::vector<double> copied;
  std::istringstream lines(text);
  int64_t n = 0, noisy = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = fmt::format("{}:{}", where, ++n);
    const Json json = parse_json(line, place);
    if (!json.is_object()) fail(ErrorKind::input, "{}: expected an object, found {}", place, json.type_name());
    if (n == 1) {
      peaks = read_peaks(json, place);
      continue;
    }
    const std::string op = json_string(json, "op", place), type = json_string(json, "type", place);
    if (peaks.gflop_per_s.count(type) == 0)
      fail(ErrorKind::input, "{}: type: expected f32 or bf16, found \"{}\"", place, type);
    if (!json_bool(json, "quiet", place, false)) {
      ++noisy;
      continue;
    }
    const double share = json_number(json, "gflop_per_s", place) / peaks.gflop_per_s[type];
    if (op.starts_with("gemm ")) gemm[type] = std::max(gemm[type], share);
    else if (op.starts_with("attention")) attention[type] = std::max(attention[type], share);
    else if (!op.starts_with("paged_") && !op.starts_with("quant_") && !op.starts_with("gemm_"))
      copied.push_back(json_number(json, "gb_per_s", place) / peaks.copy_gb_per_s);
  }
  if (n == 0) fail(ErrorKind::input, "{}: expected the lines of dbench kernels --json, found none", where);
  if (noisy > 0)
    fractions.notes.push_back(
        fmt::format("{}: {} ops ran while others were on the machine and are not used", where, noisy));
  fractions.gemm = mean(gemm);
  fractions.attention = mean(attention);
  if (!copied.empty()) {
    std::nth_element(copied.begin(), copied.begin() + static_cast<std::ptrdiff_t>(copied.size() / 2), copied.end());
    fractions.memory = std::min(1.0, copied[copied.size() / 2]);
  }
  return fractions;
}

}  // namespace rw
