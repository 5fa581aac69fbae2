#include "tools/dtrain_prepare.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/units.h"
#include "libcore/data/prepare.h"
#include "tools/cli.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dtrain prepare --input corpus.txt --tokenizer bytes --output corpus.h5\n"
    "  dtrain prepare --input a.jsonl --input b.jsonl --tokenizer path/to/tokenizer.json --output corpus.h5\n"
    "  zcat corpus.txt.gz | dtrain prepare --input - --train-bpe 4096 --document blank-line --output corpus.h5\n"
    "\n"
    "A corpus may be larger than memory. Until the output is complete, its tokens lie on the disk twice.";

void show(ProgressBar& bar, const PrepareProgress& p, double start) {
  const double fraction =
      p.bytes_total > 0 ? static_cast<double>(p.bytes_done) / static_cast<double>(p.bytes_total) : -1;
  std::string detail;
  if (p.bytes_done > 0) {
    detail = format_bytes(static_cast<double>(p.bytes_done));
    if (p.bytes_total > 0) detail += " of " + format_bytes(static_cast<double>(p.bytes_total));
  }
  if (p.tokens > 0)
    detail += fmt::format("{}{} tokens", detail.empty() ? "" : ", ", format_count(static_cast<double>(p.tokens)));
  const double elapsed = now_s() - start;
  if (p.bytes_done > 0 && elapsed > 1)
    detail += fmt::format(", {}/s", format_bytes(static_cast<double>(p.bytes_done) / elapsed));
  bar.show(p.phase, fraction, detail);
}

}  // namespace

int dtrain_prepare(int argc, const char* const* argv) {
  PrepareSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({"json", &json, "print the result as one JSON object on standard output"});
  const CommandLine line{.name = "dtrain prepare",
                         .description = "Turns text into a token file that dtrain trains on.",
                         .fields = list,
                         .positional = {"input"},
                         .required = {"input", "output"},
                         .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;

  fmt::print(stderr, "preparing {}: needs the tokens' size twice on that disk until it is done{}\n", spec.output,
             spec.train_bpe > 0 ? "; two passes over the input, the first learns the tokenizer" : "");
  PrepareReport report;
  {
    ProgressBar bar;
    std::string phase;
    double phase_start = 0;
    report = prepare(spec, [&](const PrepareProgress& p) {
      if (phase != p.phase) phase = p.phase, phase_start = now_s();
      show(bar, p, phase_start);
    });
  }
  if (!report.tokenizer_file.empty()) fmt::print(stderr, "learned tokenizer: {}\n", report.tokenizer_file);
  fmt::print(stderr, "{}: {} documents, {} -> {} tokens of {} ({:.3f} bytes/token), fingerprint {}, {}\n",
             report.output, report.documents, format_bytes(static_cast<double>(report.bytes)), report.tokens,
             report.tokenizer, report.bytes_per_token, report.fingerprint, format_seconds(report.seconds));
  if (json) fmt::print("{}\n", fields_json(fields(report)).dump());
  return 0;
}

}  // namespace rw
