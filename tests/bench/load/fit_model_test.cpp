#include "libcore/bench/load/fit_model.h"

#include <doctest/doctest.h>

#include "libcore/base/error.h"

using namespace rw;

namespace {

ServedModelInfo model_of(int64_t context) {
  ServedModelInfo m;
  m.id = "m";
  m.max_model_len = context;
  return m;
}

std::string message_of(const auto& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("default lengths: as they are where there is room or nobody says, shortened in proportion where not") {
  ServeLoadSpec spec;
  CHECK(fit_to_model(spec, model_of(0)).empty());
  CHECK(spec.input_len == "512");
  CHECK(spec.output_len == "128");
  spec = {};
  CHECK(fit_to_model(spec, model_of(640)).empty());
  CHECK(spec.input_len == "512");
  spec = {};
  CHECK(fit_to_model(spec, model_of(256)).size() == 1);
  CHECK(spec.output_len == "51");  // 256 * 128 / 640
  CHECK(spec.input_len == "205");
  CHECK(fit_to_model(spec, model_of(256)).empty());  // said now
  spec = {};
  spec.dataset = "multi-turn";  // three turns: 85 tokens each
  (void)fit_to_model(spec, model_of(256));
  CHECK(spec.output_len == "17");
  CHECK(spec.input_len == "68");
  spec = {};
  spec.dataset = "shared-prefix";
  CHECK(fit_to_model(spec, model_of(256)).size() == 2);
  CHECK(spec.prefix_len == 102);
}

TEST_CASE("lengths that were said stay, and leave room or are told") {
  ServeLoadSpec spec;
  spec.input_len = "100..200";
  CHECK(fit_to_model(spec, model_of(256)).size() == 1);
  CHECK(spec.input_len == "100..200");
  CHECK(spec.output_len == "56");
  spec = {};
  spec.output_len = "250";
  (void)fit_to_model(spec, model_of(256));
  CHECK(spec.input_len == "6");
  spec = {};
  spec.input_len = "256";
  CHECK(message_of([&] { fit_to_model(spec, model_of(256)); }).find("--input-len") != std::string::npos);
  spec = {};
  spec.output_len = "300";
  CHECK(message_of([&] { fit_to_model(spec, model_of(256)); }).find("--output-len") != std::string::npos);
}
