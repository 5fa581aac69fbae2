#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "libcore/base/units.h"
#include "libcore/bench/cost/run_time.h"
#include "libcore/bench/record/statistics.h"
#include "libcore/bench/report/html.h"
#include "libcore/bench/report/sections.h"
#include "libcore/bench/train/mfu_reading.h"

namespace rw {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string scalar_text(const Json& v) {
  if (v.is_string()) return v.get<std::string>();
  if (v.is_null()) return "";
  if (v.is_number_float()) return fmt::format("{:.6g}", v.get<double>());
  return v.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<double> settled(const RunRecords& run, double StepRecord::*member) {
  std::vector<double> values;
  for (const StepRecord* s : settled_steps(run))
    if (std::isfinite(s->*member)) values.push_back(s->*member);
  return values;
}
double median_of(const RunRecords& run, double StepRecord::*member) { return quantile_of(settled(run, member), 0.5); }

std::string reading_of(const RunRecords& run, double full) {
  if (!std::isfinite(full)) return "no peak is recorded";
  const Json identity = identity_json(run);
  double step_s = 0;
  std::array<double, static_cast<size_t>(TimeCategory::n_categories)> sums{};
  for (const StepRecord* s : settled_steps(run)) {
    step_s += std::isfinite(s->step_s) ? s->step_s : 0;
    for (size_t c = 0; c < sums.size(); ++c) sums[c] += std::isfinite(s->seconds[c]) ? s->seconds[c] : 0;
  }
  const auto share = [&](TimeCategory c) { return step_s > 0 ? sums[static_cast<size_t>(c)] / step_s : 0; };
  return mfu_reading({.mfu = full,
                      .is_gpu = text_at(identity, {"backend"}).starts_with("cuda"),
                      .params = std::atof(text_at(identity, {"params"}).c_str()),
                      .compute = share(TimeCategory::compute),
                      .communication = share(TimeCategory::communication),
                      .bubble = share(TimeCategory::bubble),
                      .data = share(TimeCategory::data),
                      .checkpoint = share(TimeCategory::checkpoint),
                      .roofline = kNone});
}

// "vm x 4, other x 4".
std::string host_list(const Json& identity) {
  const auto hosts = identity.find("hosts");
  if (hosts == identity.end() || !hosts->is_array()) return "";
  std::vector<std::pair<std::string, int>> counts;
  for (const Json& h : *hosts) {
    const std::string name = scalar_text(h);
    const auto at = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == name; });
    if (at == counts.end()) counts.emplace_back(name, 1);
    else ++at->second;
  }
  std::string out;
  const size_t shown = std::min<size_t>(counts.size(), 8);
  for (size_t i = 0; i < shown; ++i) out += fmt::format("{}{} x {}", i ? ", " : "", counts[i].first, counts[i].second);
  if (shown < counts.size()) out += fmt::format(" and {} more", counts.size() - shown);
  return out;
}

void flatten(const Json& json, const std::string& prefix, std::vector<std::pair<std::string, std::string>>& out) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) flatten(value, name, out);
    else out.emplace_back(name, scalar_text(value));
  }
}

double last_validation(const RunRecords& run, bool best) {
  double found = kNone;
  for (const EventRecord& e : run.events) {
    if (e.event != "validation") continue;
    const Json line = Json::parse(e.line, nullptr, false);
    if (!line.is_object() || !line.contains("val_loss") || !line["val_loss"].is_number()) continue;
    const double v = line["val_loss"].get<double>();
    if (!best || !(v >= found)) found = v;
  }
  return found;
}

}  // namespace

Json identity_json(const RunRecords& run) {
  const Json json = Json::parse(run.identity, nullptr, false);
  return json.is_object() ? json : Json::object();
}

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object()) return "";
    const auto found = at->find(key);
    if (found == at->end()) return "";
    at = &*found;
  }
  return at->is_object() ? "" : scalar_text(*at);
}

std::vector<std::pair<std::string, std::string>> flattened(const Json& json) {
  std::vector<std::pair<std::string, std::string>> out;
  if (json.is_object()) flatten(json, "", out);
  return out;
}

std::string identity_section(const std::string& id, const RunRecords& run) {
  const Json identity = identity_json(run);
  if (identity.empty())
    return html_section(id, "What was run", html_note("run.json is missing: what was run is not known."));
  HtmlTable table{.head = {}, .rows = {}, .text_columns = 2};
  const auto row = [&](const char* name, const std::string& value) {
    if (!value.empty()) table.rows.push_back({name, value});
  };
  std::string data;
  if (const auto files = identity.find("data"); files != identity.end() && files->is_array())
    for (const Json& f : *files) {
      const std::string tokens = text_at(f, {"tokens"}), path = text_at(f, {"path"});
      data += (data.empty() ? "" : "; ") + std::filesystem::path(path).filename().string();
      if (!tokens.empty()) data += fmt::format(" ({} tokens)", format_count(std::atof(tokens.c_str())));
    }
  const std::string params = text_at(identity, {"params"});
  const std::string arch = text_at(identity, {"model_config", "model_type"});
  row("Model", text_at(identity, {"config", "model"}) + (arch.empty() ? "" : ", " + arch) +
                   (params.empty() ? "" : fmt::format(", {} parameters", format_count(std::atof(params.c_str())))));
  row("Layout", text_at(identity, {"layout", "text"}) + ", zero " + text_at(identity, {"layout", "zero"}) +
                    ", micro-batch " + text_at(identity, {"layout", "micro_batch"}) + ", recompute " +
                    text_at(identity, {"config", "recompute"}));
  row("Precision", text_at(identity, {"precision"}));
  row("Batch",
      text_at(identity, {"global_batch"}) + " sequences of " + text_at(identity, {"config", "seq_len"}) + " tokens");
  row("Data", data + (data.empty() ? "" : ", fingerprint " + text_at(identity, {"dataset_fingerprint"})));
  row("Ranks", host_list(identity));
  row("Threads a rank", text_at(identity, {"threads_per_rank"}));
  row("Backend", text_at(identity, {"backend"}));
  const std::string peak = text_at(identity, {"peak_flops_per_rank"});
  if (!peak.empty())
    row("Peak a rank",
        fmt::format("{:.4g} TFLOP/s ({})", std::atof(peak.c_str()) / 1e12, text_at(identity, {"peak_flops_source"})));
  row("Run", text_at(identity, {"run_id"}) + ", made " + text_at(identity, {"created"}) + " by Rankwright " +
                 text_at(identity, {"tool_version"}));
  row("Directory", run.dir.string());
  return html_section(id, "What was run", html_table(table));
}

std::vector<Headline> headline_of(const RunRecords& run) {
  std::vector<double> losses;
  for (const StepRecord& s : run.steps)
    if (std::isfinite(s.loss)) losses.push_back(s.loss);
  const size_t tail = std::min<size_t>(losses.size(), 10);
  const double loss = tail > 0 ? mean_of(std::span(losses).last(tail)) : kNone;
  const std::vector<double> steps_s = settled(run, &StepRecord::step_s);
  const RunTime time = run_time(run);
  const double full = median_of(run, &StepRecord::mfu_full);
  double most_memory = kNone;
  for (const StepRecord& s : run.steps)
    if (const auto at = s.memory_bytes.find("planned"); at != s.memory_bytes.end() && !(at->second <= most_memory))
      most_memory = at->second;
  const double last_step = run.steps.empty() ? kNone : static_cast<double>(run.steps.back().step);
  return {
      {"Loss", number_text(loss), tail > 1 ? fmt::format("mean of the last {} steps", tail) : ""},
      {"Validation loss", number_text(last_validation(run, false)),
       std::isfinite(last_validation(run, true)) ? "best " + number_text(last_validation(run, true)) : "not evaluated"},
      {"Tokens/s", number_text(median_of(run, &StepRecord::tokens_per_s)), "median after the warm-up"},
      {"Step time", seconds_text(quantile_of(steps_s, 0.5)), "p95 " + seconds_text(quantile_of(steps_s, 0.95))},
      {"MFU, full attention", percent_text(full), "attention counted in full"},
      {"MFU, causal", percent_text(median_of(run, &StepRecord::mfu_causal)), "half of the attention square counted"},
      {"HFU", percent_text(median_of(run, &StepRecord::mfu_hardware)), "what the hardware did, recompute included"},
      {"Steps", number_text(last_step), number_text(run.steps.empty() ? kNone : run.steps.back().tokens) + " tokens"},
      {"Wall time", time.wall_s > 0 ? format_seconds(time.wall_s) : "-",
       fmt::format("{} productive, {} attempt{}", percent_text(time.wall_s > 0 ? time.effective() : kNone, 0),
                   time.attempts, time.attempts == 1 ? "" : "s")},
      {"Memory of rank 0", bytes_text(most_memory), "planned and held"},
  };
}

std::string headline_section(const std::string& id, const RunRecords& run) {
  std::string cards = "<div class=\"cards\">\n";
  for (const Headline& h : headline_of(run))
    cards += fmt::format("<div class=\"card\"><span>{}</span><b>{}</b><em>{}</em></div>\n", escape_html(h.name),
                         escape_html(h.value), escape_html(h.note));
  cards += "</div>\n";
  if (!run.steps.empty())
    cards += fmt::format("<p>{}</p>\n", escape_html(reading_of(run, median_of(run, &StepRecord::mfu_full))));
  if (run.steps.empty()) cards += html_note("metrics.jsonl holds no step: the run ended before its first one.");
  return html_section(id, "In short", cards);
}

std::string events_section(const std::string& id, const RunRecords& run) {
  std::string body;
  for (const std::string& note : run.notes) body += html_note(note);
  std::map<std::string, int64_t> counts;
  HtmlTable table{.head = {"Time", "Step", "Event", "Details"}, .rows = {}, .text_columns = 4};
  constexpr size_t kMost = 60, kEach = 12;
  size_t left_out = 0;
  for (const EventRecord& e : run.events) {
    // The first ones of a kind tell; checkpoints by the hundred do not.
    if (static_cast<size_t>(++counts[e.event]) > kEach || table.rows.size() >= kMost) {
      ++left_out;
      continue;
    }
    const Json line = Json::parse(e.line, nullptr, false);
    std::string details;
    for (const auto& [name, value] : flattened(line))
      if (name != "event" && name != "time" && name != "step" && name != "run_id" && !value.empty())
        details += (details.empty() ? "" : ", ") + name + " " + shortened(value, 80);
    table.rows.push_back({e.time, e.step >= 0 ? std::to_string(e.step) : "", e.event, shortened(details, 300)});
  }
  body += table.rows.empty() ? html_note("events.jsonl holds no event.") : html_table(table);
  if (left_out > 0) body += html_note(fmt::format("{} more events are in events.jsonl.", left_out));
  return html_section(id, "What happened", body);
}

std::string findings_section(const std::string& id, const std::string& diagnosis) {
  if (diagnosis.empty()) return "";
  const Json json = Json::parse(diagnosis, nullptr, false);
  const auto findings = json.is_object() ? json.find("findings") : json.end();
  if (!json.is_object() || findings == json.end() || !findings->is_array())
    return html_section(
        id, "Findings",
        html_note("The diagnosis holds no list of findings: expected what dbench doctor --json prints."));
  std::string body;
  for (const Json& f : *findings) {
    if (!f.is_object()) continue;
    const std::string severity = text_at(f, {"severity"});
    const std::string kind = severity == "failure" ? "failure" : severity == "warning" ? "warning" : "info";
    std::string evidence;
    if (const auto at = f.find("evidence"); at != f.end()) {
      const Json facts = at->is_object() ? *at : Json{{"evidence", *at}};
      for (const auto& [name, fact] : facts.items()) {
        // A fact's number with its words behind it; where it was read is in the diagnosis.
        const std::string words = text_at(fact, {"text"});
        const bool has_number = fact.is_object() && fact.contains("value") && fact["value"].is_number();
        std::string value = has_number ? number_text(fact["value"].get<double>()) : "";
        if (!words.empty()) value += value.empty() ? words : " (" + words + ")";
        if (!fact.is_object()) value = fact.is_string() ? fact.get<std::string>() : fact.dump();
        evidence += (evidence.empty() ? "" : "; ") + name + " " + shortened(value, 120);
      }
    }
    body += fmt::format("<div class=\"finding {}\"><b>{}: {}</b><p>{}</p>", kind, escape_html(severity),
                        escape_html(text_at(f, {"id"})), escape_html(text_at(f, {"explanation"})));
    if (const std::string fix = text_at(f, {"fix"}); !fix.empty()) body += fmt::format("<p>{}</p>", escape_html(fix));
    if (const std::string next = text_at(f, {"next"}); !next.empty())
      body += fmt::format("<p>Next: <code>{}</code></p>", escape_html(next));
    if (!evidence.empty()) body += fmt::format("<p class=\"sub\">{}</p>", escape_html(shortened(evidence, 400)));
    body += "</div>\n";
  }
  if (body.empty()) body = html_note("The doctor found nothing.");
  return html_section(id, "Findings", body);
}

}  // namespace rw
