#include "libcore/plan/measure/kernel_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/json.h"

namespace rw {
namespace {

struct Peaks {
  std::map<std::string, double> gflop_per_s;  // by element type
  double copy_gb_per_s = 0;
};

Peaks read_peaks(const Json& json, const std::string& where) {
  const auto peak = json.find("peak_gflop_per_s");
  if (peak == json.end() || !peak->is_object())
    fail(ErrorKind::input, "{}: expected the machine's peaks, found no peak_gflop_per_s", where);
  Peaks peaks{.copy_gb_per_s = json_number(json, "copy_gb_per_s", where)};
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
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    fail(ErrorKind::input, "{}: expected what dbench kernels --json prints, found an empty file", where);
  const Json record = parse_json(text, where);
  const auto details = record.is_object() ? record.find("details") : record.end();
  if (!record.is_object() || details == record.end() || !details->is_object() || !details->contains("peaks") ||
      !details->contains("ops") || !(*details)["ops"].is_array())
    fail(ErrorKind::input, "{}: expected what dbench kernels --json prints, with details.peaks and details.ops", where);
  Peaks peaks = read_peaks((*details)["peaks"], where + ": details.peaks");
  KernelFractions fractions{.where = where};
  if (const Json& told = (*details)["peaks"]; told.contains("backend") && told["backend"].is_string())
    fractions.backend = told["backend"];
  std::map<std::string, double> gemm, attention;  // the best share, by element type
  std::vector<double> copied;
  int64_t n = 0, noisy = 0;
  for (const Json& json : (*details)["ops"]) {
    const std::string place = fmt::format("{}: details.ops[{}]", where, n++);
    if (!json.is_object()) fail(ErrorKind::input, "{}: expected an object, found {}", place, json.type_name());
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
