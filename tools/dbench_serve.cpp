#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "libcore/base/files.h"
#include "libcore/base/printable.h"
#include "libcore/bench/load/serve_bench.h"
#include "tools/cli.h"
#include "tools/dbench.h"
#include "tools/drain_signals.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench serve --url http://127.0.0.1:8000 --request-rate 4 --num-prompts 200 --slo-ttft-ms 500 --slo-itl-ms 50\n"
    "  dbench serve --url http://127.0.0.1:8000 --max-concurrency 16 --input-len 100..2000 --output-len 128 --repeats "
    "5\n"
    "  dbench serve --url http://127.0.0.1:8000 --slo-ttft-ms 500 --find-rate --attainment 0.95 --price 2.5\n"
    "  dbench serve --url http://127.0.0.1:8000 --trace conversation.jsonl --trace-speed 2 --json\n"
    "\n"
    "Exit code: 0 done; 1 the server cannot be reached, or no request ended well; 3 the server was not back where it "
    "was "
    "afterwards, no rate keeps the objective, or, with --strict, the client was too slow or kept waiting, or texts "
    "differ.\n"
    "docs/load.md defines the numbers and says how other tools differ.";

}  // namespace

int dbench_serve(int argc, const char* const* argv) {
  ServeLoadSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({.name = "json",
                  .value = &json,
                  .help = "print a record on standard output instead of the table",
                  .group = "Output"});
  const CommandLine line{.name = "dbench serve",
                         .description = "Loads an OpenAI-compatible server and says what its users felt.",
                         .fields = list,
                         .required = {"url"},
                         .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  if (const char* key = std::getenv("OPENAI_API_KEY"); key != nullptr && spec.api_key.empty()) spec.api_key = key;
  // The first signal ends the measuring, and what was measured is told.
  catch_drain_signals();
  serving_began();
  ServeBenchResult result;
  {
    ProgressBar bar;
    result = run_serve_bench(
        spec,
        [&](const std::string& phase, double fraction, const std::string& detail) {
          bar.show(phase, fraction, detail);
        },
        [] { return drain_signals() > 0; });
    bar.clear();
  }
  if (json) fmt::print("{}\n", record_json(result.record).dump());
  else fmt::print("{}", printable(result.text));
  std::fflush(stdout);
  if (!spec.vllm_json.empty()) write_file_atomic(spec.vllm_json, result.flat + "\n");
  for (const std::string& note : result.notes) fmt::print(stderr, "dbench serve: note: {}\n", printable(note));
  for (const std::string& warning : result.warnings)
    fmt::print(stderr, "dbench serve: warning: {}\n", printable(warning));
  if (result.failure) throw *result.failure;
  return 0;
}

}  // namespace rw
