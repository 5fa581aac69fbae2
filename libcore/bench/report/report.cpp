#include "libcore/bench/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/version.h"
#include "libcore/bench/report/html.h"

namespace rw {
namespace {

// A run's sections, and the links to them.
std::string run_part(const ReportRun& run, size_t i, bool alone, std::string& links) {
  const auto id = [&](const char* name) { return alone ? std::string(name) : fmt::format("run{}-{}", i + 1, name); };
  struct Section {
    const char *name, *link;
    std::string html;
  };
  const RunRecords& r = run.records;
  const Section sections[] = {
      {"short", "In short", headline_section(id("short"), r)},
      {"findings", "Findings", findings_section(id("findings"), run.diagnosis)},
      {"identity", "What was run", identity_section(id("identity"), r)},
      {"learning", "Learning", curves_section(id("learning"), r)},
      {"speed", "Speed", time_section(id("speed"), r)},
      {"predicted", "Predicted and measured", predicted_section(id("predicted"), r)},
      {"pipeline", "Pipeline", pipeline_section(id("pipeline"), r)},
      {"memory", "Memory", memory_section(id("memory"), r)},
      {"hosts", "Hosts", resources_section(id("hosts"), r)},
      {"events", "What happened", events_section(id("events"), r)},
  };
  std::string out;
  for (const Section& s : sections) {
    out += s.html;
    if (alone && !s.html.empty()) links += fmt::format("<a href=\"#{}\">{}</a>\n", s.name, s.link);
  }
  if (!alone) links += fmt::format("<a href=\"#run{}\">{}</a>\n", i + 1, escape_html(run.label));
  return out;
}

std::string title_of(const ReportInputs& in) {
  if (!in.title.empty()) return in.title;
  if (in.runs.size() == 1) {
    const std::string model = text_at(identity_json(in.runs[0].records), {"config", "model"});
    return model.empty() ? in.runs[0].label : model + ", " + in.runs[0].label;
  }
  if (in.runs.size() > 1) return fmt::format("{} runs", in.runs.size());
  return "Measurements";
}

}  // namespace

std::string report_html(const ReportInputs& in) {
  const bool alone = in.runs.size() == 1;
  std::string links, body;
  if (in.runs.size() > 1) {
    links += "<a href=\"#compare\">Runs side by side</a>\n";
    body += compare_section(in.runs);
  }
  for (size_t i = 0; i < in.runs.size(); ++i) {
    if (!alone) body += fmt::format("<h2 id=\"run{}\">{}</h2>\n", i + 1, escape_html(in.runs[i].label));
    body += run_part(in.runs[i], i, alone, links);
  }
  if (!in.serve.empty()) {
    links += "<a href=\"#serve\">Serving</a>\n";
    body += serve_section(in.serve);
  }
  if (!in.bench.empty()) {
    links += "<a href=\"#bench\">Benchmarks</a>\n";
    body += bench_section(in.bench);
  }
  const std::string title = escape_html(title_of(in));
  std::string sub;
  if (alone) sub = text_at(identity_json(in.runs[0].records), {"layout", "text"});
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<header><h1>{0}</h1><p class=\"sub\">{2}</p></header>\n<nav>\n{3}</nav>\n<main>\n{4}</main>\n"
      "<footer>Made by dbench report, Rankwright {5}, {6}. This page asks the network for "
      "nothing.</footer>\n</body>\n</html>\n",
      title, kPageStyle, escape_html(sub), links, body, escape_html(version()), escape_html(in.made));
}

std::vector<std::string> run_labels(const std::vector<std::filesystem::path>& dirs) {
  std::vector<std::vector<std::string>> parts;
  for (const std::filesystem::path& dir : dirs) {
    parts.emplace_back();
    for (const std::filesystem::path& part : std::filesystem::absolute(dir).lexically_normal())
      if (!part.empty() && part != "/") parts.back().push_back(part.string());
    std::reverse(parts.back().begin(), parts.back().end());
  }
  std::vector<std::string> labels;
  for (size_t depth = 1; depth <= 64; ++depth) {
    labels.clear();
    for (const auto& own : parts) {
      std::string label;
      for (size_t d = 0; d < std::min(depth, own.size()); ++d) label = own[d] + (d > 0 ? "/" + label : "");
      labels.push_back(label.empty() ? "/" : label);
    }
    if (std::set<std::string>(labels.begin(), labels.end()).size() == labels.size()) return labels;
  }
  // The same folder twice.
  for (size_t i = 0; i < labels.size(); ++i) labels[i] += fmt::format(" ({})", i + 1);
  return labels;
}

}  // namespace rw
