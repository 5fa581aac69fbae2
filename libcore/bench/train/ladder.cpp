#include "libcore/bench/train/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/bench/train/train_record.h"
#include "libcore/spec/layout.h"

namespace rw {
namespace {

struct Strategy {
  const char* name;
  std::function<void(TrainSpec&)> apply;
  // What it needs of the layout that it makes; "" when it is there.
  std::function<std::string(const Layout&)> lacks = [](const Layout&) { return std::string(); };
};

std::vector<Strategy> strategies() {
  const auto needs_replicas = [](const Layout& l) { return l.dp > 1 ? "" : "there is one replica: nothing to shard"; };
  const auto needs_stages = [](const Layout& l) { return l.pp > 1 ? "" : "there is one stage: no bubble to fill"; };
  return {{"zero 1", [](TrainSpec& s) { s.zero = 1; }, needs_replicas},
          {"tp 2", [](TrainSpec& s) { s.tp = 2; }},
          {"sp", [](TrainSpec& s) { s.sp = true; }},
          {"pp 2", [](TrainSpec& s) { s.pp = 2; }},
          {"schedule zb-h1", [](TrainSpec& s) { s.schedule = "zb-h1"; }, needs_stages},
          {"recompute selective", [](TrainSpec& s) { s.recompute = "selective"; }},
          {"recompute full", [](TrainSpec& s) { s.recompute = "full"; }}};
}

// Why a strategy cannot be added to `spec`; "" when it was.
std::string added(const Strategy& strategy, TrainSpec& spec, const ModelSpec& model, int ranks) {
  TrainSpec tried = spec;
  strategy.apply(tried);
  try {
    const Layout layout = settle_layout(tried, model, ranks);
    if (const std::string lack = strategy.lacks(layout); !lack.empty()) return lack;
    if (layout.dp == 1) tried.zero = 0;  // the ranks went to something else, and one replica shards nothing
  } catch (const Error& e) {
    const std::string text = e.what();
    return text.substr(0, text.find(';'));
  }
  spec = tried;
  return "";
}

double ratio(const BenchRecord& of, const BenchRecord& to, const char* metric) {
  return median_of_metric(of, metric) / median_of_metric(to, metric);
}

std::string change(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

}  // namespace

std::vector<Rung> ladder_rungs(const TrainSpec& base, const ModelSpec& model, int ranks) {
  const Layout plain = settle_layout(base, model, ranks);
  std::vector<Rung> rungs(1);
  rungs[0].name = fmt::format("dp {}", plain.dp);
  rungs[0].spec = base;
  rungs[0].spec.global_batch = plain.global_batch;
  rungs[0].spec.seq_len = plain.seq_len;
  TrainSpec last = rungs[0].spec;
  for (const Strategy& strategy : strategies()) {
    Rung rung;
    rung.spec = last;
    rung.skipped = added(strategy, rung.spec, model, ranks);
    rung.name = std::string("+ ") + strategy.name;
    if (!rung.skipped.empty()) {
      TrainSpec alone = rungs[0].spec;
      if (added(strategy, alone, model, ranks).empty()) {
        rung.spec = alone;
        rung.skipped.clear();
        rung.name = strategy.name;
      }
    }
    if (rung.skipped.empty()) last = rung.spec;
    rungs.push_back(std::move(rung));
  }
  return rungs;
}

std::string compare_rungs(const std::vector<Rung>& rungs, std::vector<BenchRecord>& records) {
  size_t wide = 6;
  for (const BenchRecord& r : records)
    wide = std::max(wide, Json::parse(r.details)["layout"]["text"].get<std::string>().size());
  std::string text = fmt::format("{:<22} {:<{}} {:>10} {:>10} {:>9} {:>9} {:>12} {:>9} {:>9}\n", "rung", "layout", wide,
                                 "step ms", "tokens/s", "vs base", "vs before", "memory", "vs base", "vs before");
  constexpr const char* kSpeed = "tokens_per_s";
  constexpr const char* kMemory = "memory.planned.bytes";
  size_t at = 0;
  for (const Rung& rung : rungs) {
    if (!rung.skipped.empty()) {
      text += fmt::format("{:<22} skipped: {}\n", rung.name, rung.skipped);
      continue;
    }
    BenchRecord& r = records[at];
    const BenchRecord &base = records.front(), &before = records[at > 0 ? at - 1 : 0];
    Json details = Json::parse(r.details);
    details["ladder"] = {{"rung", rung.name},
                         {"tokens_per_s_over_base", ratio(r, base, kSpeed)},
                         {"tokens_per_s_over_before", ratio(r, before, kSpeed)},
                         {"memory_over_base", ratio(r, base, kMemory)},
                         {"memory_over_before", ratio(r, before, kMemory)}};
    r.details = details.dump();
    text += fmt::format("{:<22} {:<{}} {:>10.2f} {:>10.0f}", rung.name, details["layout"]["text"].get<std::string>(),
                        wide, 1e3 * median_of_metric(r, "step_s"), median_of_metric(r, kSpeed));
    if (at == 0) text += fmt::format(" {:>9} {:>9} {:>12}\n", "", "", format_bytes(median_of_metric(r, kMemory)));
    else
      text += fmt::format(" {:>9} {:>9} {:>12} {:>9} {:>9}\n", change(ratio(r, base, kSpeed)),
                          change(ratio(r, before, kSpeed)), format_bytes(median_of_metric(r, kMemory)),
                          change(ratio(r, base, kMemory)), change(ratio(r, before, kMemory)));
    ++at;
  }
  return text +
         "Same global batch in all. Medians of steps; the changes beside tokens/s are of it. Memory: planned, of rank "
         "0. "
         "A rung without \"+\" stands on the base alone.\n" +
         not_quiet_text(records);
}

}  // namespace rw
