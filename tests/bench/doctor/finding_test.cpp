#include "libcore/bench/doctor/finding.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

using namespace rw;

namespace {

using enum Condition::Op;
constexpr Layer kLayers[] = {Layer::data_flow, Layer::communication, Layer::resources, Layer::parameters};

Rule rule(const char* id, Layer layer, Severity severity, double confidence, std::vector<Condition> when,
          std::vector<const char*> effect_of = {}) {
  return {id, layer, severity, confidence, std::move(when), "", "", "", std::move(effect_of)};
}
Facts facts_of(std::initializer_list<std::pair<const char*, double>> values) {
  Facts facts;
  for (const auto& [name, value] : values) facts.set(name, {value, "", ""});
  return facts;
}
std::vector<std::string> ids(const std::vector<Finding>& findings) {
  std::vector<std::string> out;
  for (const Finding& f : findings) out.push_back(f.id);
  return out;
}
using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("a condition on what is not known is not met, but for absent") {
  const Facts facts = facts_of({{"x", 2}, {"unknown", std::nan("")}});
  const auto met = [&](Condition c) {
    return !diagnose({rule("r", Layer::data_flow, Severity::warning, 1, {c})}, facts, {}).empty();
  };
  CHECK(met({above, "x", 1}));
  CHECK_FALSE(met({above, "x", 2}));
  CHECK(met({below, "x", 3}));
  CHECK_FALSE(met({below, "x", 2}));
  CHECK_FALSE(met({above, "y", -1e9}));
  CHECK_FALSE(met({below, "y", 1e9}));
  CHECK_FALSE(met({above, "unknown", -1e9}));
  CHECK_FALSE(met({below, "unknown", 1e9}));
  CHECK(met({present, "x", 0}));
  CHECK(met({present, "unknown", 0}));
  CHECK_FALSE(met({present, "y", 0}));
  CHECK(met({absent, "y", 0}));
  CHECK_FALSE(met({absent, "x", 0}));
}

TEST_CASE("all conditions of a rule must be met") {
  const Facts facts = facts_of({{"x", 2}, {"y", 3}});
  CHECK(diagnose({rule("r", Layer::data_flow, Severity::warning, 1, {{above, "x", 1}, {above, "y", 5}})}, facts, {})
            .empty());
  CHECK(diagnose({rule("r", Layer::data_flow, Severity::warning, 1, {{above, "x", 1}, {above, "y", 1}})}, facts, {})
            .size() == 1);
}

TEST_CASE("failures first, infos last, and else in the order of the layers, then by confidence") {
  std::vector<Rule> rules;
  // The other way round than they should come out.
  for (int layer = 3; layer >= 0; --layer) {
    static const char* names[4][4] = {{"d.info", "d.weak", "d.sure", "d.fail"},
                                      {"c.info", "c.weak", "c.sure", "c.fail"},
                                      {"r.info", "r.weak", "r.sure", "r.fail"},
                                      {"p.info", "p.weak", "p.sure", "p.fail"}};
    const auto* n = names[layer];
    rules.push_back(rule(n[0], kLayers[layer], Severity::info, 0.9, {}));
    rules.push_back(rule(n[1], kLayers[layer], Severity::warning, 0.3, {}));
    rules.push_back(rule(n[2], kLayers[layer], Severity::warning, 0.8, {}));
    rules.push_back(rule(n[3], kLayers[layer], Severity::failure, 0.1, {}));
  }
  CHECK(ids(diagnose(rules, {}, {})) == Ids{"d.fail", "c.fail", "r.fail", "p.fail", "d.sure", "d.weak", "c.sure",
                                            "c.weak", "r.sure", "r.weak", "p.sure", "p.weak", "d.info", "c.info",
                                            "r.info", "p.info"});
}

TEST_CASE("effects follow their cause, also one of a later layer, and effects of effects") {
  const std::vector<Rule> rules = {
      rule("share", Layer::communication, Severity::warning, 0.9, {}, {"hog"}),
      rule("link", Layer::communication, Severity::warning, 0.5, {}),
      rule("hog", Layer::resources, Severity::warning, 0.5, {}),
      rule("slow", Layer::parameters, Severity::warning, 0.9, {}, {"missing", "share"}),
  };
  const std::vector<Finding> found = diagnose(rules, {}, {});
  CHECK(ids(found) == Ids{"link", "hog", "share", "slow"});
  CHECK(found[1].effect_of.empty());
  CHECK(found[2].effect_of == "hog");
  CHECK(found[3].effect_of == "share");
}

TEST_CASE("an info explains no warning, and is never told before one") {
  const std::vector<Rule> rules = {
      rule("crowded", Layer::data_flow, Severity::info, 0.9, {}),
      rule("cause", Layer::data_flow, Severity::warning, 0.5, {}),
      rule("small", Layer::communication, Severity::info, 0.9, {}, {"cause"}),
      rule("share", Layer::communication, Severity::warning, 0.5, {}, {"crowded"}),
  };
  const std::vector<Finding> found = diagnose(rules, {}, {});
  CHECK(ids(found) == Ids{"cause", "share", "small", "crowded"});
  CHECK(found[1].effect_of.empty());
  CHECK(found[2].effect_of == "cause");
}

TEST_CASE("rules that name one another: each is told once, the first as the cause") {
  const std::vector<Rule> rules = {
      rule("a", Layer::data_flow, Severity::warning, 0.9, {}, {"b"}),
      rule("b", Layer::data_flow, Severity::warning, 0.8, {}, {"a"}),
  };
  const std::vector<Finding> found = diagnose(rules, {}, {});
  CHECK(ids(found) == Ids{"a", "b"});
  CHECK(found[0].effect_of.empty());
  CHECK(found[1].effect_of == "a");
}

TEST_CASE("texts are filled from facts and names, and evidence is what was asked or told") {
  Facts facts;
  facts.set("share", {0.1234, "", "metrics.jsonl"});
  facts.set("wait", {0.0456, "", ""});
  facts.set("size", {3.0 * 1024 * 1024, "", ""});
  facts.set("who", {7, "rank 7 on b", "events.jsonl"});
  facts.set("n", {1234567, "", ""});
  facts.set("silent", {1, "", ""});
  const Rule r{"r",
               Layer::communication,
               Severity::warning,
               0.7,
               {{above, "silent", 0}, {absent, "other"}},
               "{share:%} {wait:s} {size:bytes} {who:text} {n} {who} {never} {never:text}",
               "see {dir}",
               "dbench doctor {dir}"};
  const std::vector<Finding> found = diagnose({r}, facts, {{"dir", "/runs/a"}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].explanation == "12.3 % 45.6 ms 3.0 MiB rank 7 on b 1.2M 7 unknown unknown");
  CHECK(found[0].fix == "see /runs/a");
  CHECK(found[0].next == "dbench doctor /runs/a");
  std::vector<std::string> evidence;
  for (const auto& [name, fact] : found[0].evidence) evidence.push_back(name);
  CHECK(evidence == Ids{"n", "share", "silent", "size", "wait", "who"});
  const Json json = finding_json(found[0]);
  CHECK(json["layer"] == "communication");
  CHECK(json["severity"] == "warning");
  CHECK(json["evidence"]["who"]["text"] == "rank 7 on b");
  CHECK(json["evidence"]["share"]["where"] == "metrics.jsonl");
  const std::string text = finding_text(found[0]);
  for (const char* part : {"warning [communication, r, confidence 70 %]", "who: 7 (rank 7 on b), from events.jsonl",
                           "fix:  see /runs/a", "next: dbench doctor /runs/a"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}
