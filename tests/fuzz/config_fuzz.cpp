// config.json: any bytes either parse to a model whose param table and config hold the laws below, or give an Error.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/spec/param_table.h"

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  using namespace rw;
  set_log_level(LogLevel::error);
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const ModelSpec spec = parse_model_spec(parse_json(text, "fuzz"), "fuzz");
    const ModelSpec again = parse_model_spec(model_config_json(spec), "written");
    if (again != spec || model_identity(again) != model_identity(spec)) std::abort();
    if (spec.layers > 64) return;  // the table's length is the time this takes
    for (const Param& p : param_table(spec)) {
      if (!contains(p.file_shape, p.file_box) || p.file_box.size() != n_elements(p.shape)) std::abort();
      if (n_elements(p.shape) <= 0) std::abort();
    }
    if (n_params(spec) <= 0) std::abort();
  } catch (const Error&) {
    // The answer to bytes that are no model.
  }
}
