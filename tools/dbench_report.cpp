#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/log.h"
#include "libcore/bench/doctor/doctor.h"
#include "libcore/bench/report/report.h"
#include "tools/cli.h"
#include "tools/dbench.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench report run -o report.html\n"
    "  dbench report run-a run-b -o both.html --title \"tp 2 against dp 2\"\n"
    "  dbench report run --bench kernels.json --serve load.json -o report.html\n"
    "\n"
    "The page needs no network and no script; open it in any browser, or print it.";

struct ReportSpec {
  std::vector<std::string> run, bench, serve, doctor;
  std::string output, title;
  bool diagnose = true;
};

FieldList fields(ReportSpec& spec) {
  return {
      {.name = "run", .value = &spec.run, .help = "run directories of dtrain"},
      {.name = "output", .value = &spec.output, .help = "the page to write; - is standard output"},
      {.name = "bench", .value = &spec.bench, .help = "records that a dbench subcommand wrote with --json; may repeat"},
      {.name = "serve", .value = &spec.serve, .help = "records of dbench serve; may repeat"},
      {.name = "doctor", .value = &spec.doctor, .help = "what dbench doctor --json printed, one a run in their order"},
      {.name = "diagnose",
       .value = &spec.diagnose,
       .help = "ask the doctor about each run that --doctor gives none for"},
      {.name = "title", .value = &spec.title, .help = "of the page"},
  };
}

// What dbench doctor --json printed of that run.
std::string read_diagnosis(const std::string& file, const std::string& run) {
  const Json json = parse_json(read_regular_file(file), file);
  const auto is_text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  if (!json.is_object() || !is_text("kind") || !is_text("target") || !json.contains("findings") ||
      !json["findings"].is_array())
    fail(ErrorKind::input,
         "{}: expected what dbench doctor --json prints (\"kind\", \"target\", \"findings\"), found other JSON", file);
  const std::string kind = json["kind"], target = json["target"];
  const auto name = [](std::filesystem::path dir) {
    dir = dir.lexically_normal();
    return dir.has_filename() ? dir.filename() : dir.parent_path().filename();
  };
  if (kind != "run" || name(target) != name(run))
    fail(ErrorKind::input, "{}: expected the diagnosis of run {}, found that of {} {}", file, run, kind, target);
  return json.dump();
}

std::vector<ReportRun> read_runs(const ReportSpec& spec) {
  std::vector<ReportRun> runs;
  const std::vector<std::string> labels = run_labels({spec.run.begin(), spec.run.end()});
  for (size_t i = 0; i < spec.run.size(); ++i) {
    ReportRun run{.records = read_run_records(spec.run[i]), .label = labels[i], .diagnosis = ""};
    if (i < spec.doctor.size()) run.diagnosis = read_diagnosis(spec.doctor[i], spec.run[i]);
    else if (spec.diagnose && !run.records.is_empty())
      run.diagnosis = diagnosis_json(doctor_run(run.records, {})).dump();
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace

int dbench_report(int argc, const char* const* argv) {
  ReportSpec spec;
  CommandLine line{.name = "dbench report",
                   .description = "Writes what runs and measurements recorded as one self-contained HTML page.",
                   .fields = fields(spec)};
  line.positional = {"run"};
  line.required = {"output"};
  line.short_flags = {{"-o", "output"}};
  line.takes_config = false;
  line.footer = kFooter;
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  if (spec.run.empty() && spec.bench.empty() && spec.serve.empty())
    fail(ErrorKind::usage, "nothing to report: expected a run directory, --bench or --serve");
  if (spec.doctor.size() > spec.run.size())
    fail(ErrorKind::usage, "--doctor: {} diagnoses for {} runs", spec.doctor.size(), spec.run.size());
  ReportInputs inputs;
  inputs.title = spec.title;
  inputs.made = utc_timestamp();
  inputs.runs = read_runs(spec);
  for (const std::string& file : spec.bench)
    for (BenchRecord& record : read_records(file))
      (record.bench == "serve" ? inputs.serve : inputs.bench).push_back(std::move(record));
  for (const std::string& file : spec.serve)
    for (BenchRecord& record : read_records(file)) {
      if (record.bench != "serve")
        fail(ErrorKind::input, "{}: expected records of dbench serve, found one of dbench {}; give it to --bench", file,
             record.bench);
      inputs.serve.push_back(std::move(record));
    }
  const std::string page = report_html(inputs);
  if (spec.output == "-") {
    std::fwrite(page.data(), 1, page.size(), stdout);
  } else {
    write_file_atomic(spec.output, page);
    log_info("{}: {:.0f} KB", spec.output, static_cast<double>(page.size()) / 1e3);
  }
  return 0;
}

}  // namespace rw
