// What the doctor says, and the rules by which it says it. Rules are data: a rule asks named facts, which collectors
// took from records, and is told in words made from the same facts.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

// In the order they are asked: a fault of the data is never blamed on a hyper-parameter.
enum class Layer : uint8_t { data_flow, communication, resources, parameters };
enum class Severity : uint8_t { info, warning, failure };
const char* layer_name(Layer layer);  // "data flow", ...
const char* severity_name(Severity severity);

// A fact has a number, or words, or both ("rank 3 on host b"), and where it was read.
struct Fact {
  double value = 0;
  std::string text;   // who or what: "rank 3 on host b"
  std::string where;  // "metrics.jsonl, steps 120 to 140"
};
class Facts {
 public:
  void set(const std::string& name, Fact fact) { facts_[name] = std::move(fact); }
  const Fact* find(const std::string& name) const;
  const std::map<std::string, Fact>& all() const { return facts_; }

 private:
  std::map<std::string, Fact> facts_;
};

// A condition on a fact; one that is not known is not met.
struct Condition {
  enum class Op : uint8_t { above, below, present, absent } op = Op::above;
  const char* fact = "";
  double threshold = 0;
};
struct Rule {
  const char* id;  // "data.wait"
  Layer layer;
  Severity severity;
  double confidence;  // that this is the cause when the conditions are met, 0 to 1
  std::vector<Condition> when;
  // {fact} is the number in short, {fact:%} as a percentage, {fact:s} seconds, {fact:bytes} a size, {fact:text} its
  // words.
  const char* explanation;
  const char* fix;
  const char* next;  // the next command to run; {dir} and {url} are the target's
  // Ids of rules of which this one is only an effect: when they hold too, this finding is told as their effect.
  std::vector<const char*> effect_of = {};
};

struct Finding {
  std::string id;
  Layer layer = Layer::data_flow;
  Severity severity = Severity::info;
  double confidence = 0;
  std::string explanation, fix, next;
  std::vector<std::pair<std::string, Fact>> evidence;
  std::string effect_of;  // the finding that explains this one
};

// Findings of the rules whose conditions are met. Failures first, infos last; among equals by layer, then confidence;
// each cause followed by its effects (but for infos). `names` fills {dir}, {url}.
std::vector<Finding> diagnose(const std::vector<Rule>& rules, const Facts& facts,
                              const std::map<std::string, std::string>& names);
Json finding_json(const Finding& finding);
std::string finding_text(const Finding& finding);  // several lines for people

}  // namespace rw
