#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/bench/cost/cost.h"
#include "tools/cli.h"
#include "tools/dbench.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench cost run --price 2.50\n"
    "  dbench cost run --power-w 900 --electricity 0.15 --device-price 30000 --life-years 4 --utilisation 0.8\n"
    "  dbench cost load.json --price 2.50 --devices 8\n"
    "\n"
    "The source is a run directory of dtrain, a record of dbench serve, or a directory that dserve --out wrote with\n"
    "--log-spans --log-steps. Formulas are in docs/report.md.";

bool is_training(const std::filesystem::path& dir) {
  namespace fs = std::filesystem;
  return fs::exists(dir / "run.json") || fs::exists(dir / "metrics.jsonl");
}

template <typename Cost>
void print(const Cost& cost, const CostSpec& spec, const std::string& name, bool json) {
  if (json) fmt::print("{}\n", record_json(cost_record(cost, spec, name)).dump());
  else fmt::print("{}", cost_text(cost, spec));
}

}  // namespace

int dbench_cost(int argc, const char* const* argv) {
  CostSpec spec;
  std::string source;
  bool json = false;
  CommandLine line{
      .name = "dbench cost",
      .description = "What a training run or a served load cost, from its records and prices.",
      .fields = {{.name = "source", .value = &source, .help = "a run directory, a record, or a dserve directory"}}};
  for (Field& field : fields(spec)) line.fields.push_back(std::move(field));
  line.fields.push_back({.name = "json", .value = &json, .help = "print a record on standard output"});
  line.positional = {"source"};
  line.required = {"source"};
  line.takes_config = false;
  line.footer = kFooter;
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  check_cost(spec);
  if (std::filesystem::is_directory(source)) {
    if (is_training(source)) print(training_cost(read_run_records(source), spec), spec, source, json);
    else print(serving_cost(served_load(std::filesystem::path(source)), spec), spec, source, json);
    return 0;
  }
  const std::vector<BenchRecord> records = read_records(source);
  if (records.empty()) fail(ErrorKind::input, "{}: no record in it", source);
  for (const BenchRecord& record : records) {
    if (records.size() > 1 && !json) fmt::print("{}\n", record.name);
    print(serving_cost(served_load(record), spec), spec, record.name, json);
  }
  return 0;
}

}  // namespace rw
