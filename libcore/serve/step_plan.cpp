#include "libcore/serve/step_plan.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "libcore/base/check.h"

namespace rw {
namespace {

class Writer {
 public:
  template <class T>
  void put(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* from = reinterpret_cast<const std::byte*>(&v);
    bytes.insert(bytes.end(), from, from + sizeof v);
  }
  template <class T>
  void put(const std::vector<T>& v) {
    put(static_cast<int64_t>(v.size()));
    for (const T& x : v) put(x);
  }
  std::vector<std::byte> bytes;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  void get(T& v) {
    CHECK(bytes_.size() >= sizeof v, "a step plan ends early");
    std::memcpy(&v, bytes_.data(), sizeof v);
    bytes_ = bytes_.subspan(sizeof v);
  }
  template <class T>
  void get(std::vector<T>& v) {
    int64_t n = 0;
    get(n);
    CHECK(n >= 0 && static_cast<size_t>(n) <= bytes_.size(), "a step plan's list of %lld", static_cast<long long>(n));
    v.resize(static_cast<size_t>(n));
    for (T& x : v) get(x);
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

// One list of the fields for both ways.
template <class Way, class Params>
void sampling_fields(Way&& way, Params& s) {
  way(s.temperature), way(s.top_k), way(s.top_p), way(s.min_p);
  way(s.repetition_penalty), way(s.presence_penalty), way(s.frequency_penalty);
  way(s.seed), way(s.min_tokens), way(s.top_logprobs), way(s.ends);
}
template <class Way, class Plan>
void plan_fields(Way&& way, Plan& p) {
  way(p.step), way(p.stop), way(p.ends);
}

}  // namespace

int64_t StepPlan::n_tokens() const {
  int64_t n = 0;
  for (const SequenceRows& r : rows) n += r.n;
  return n;
}

std::vector<std::byte> pack_plan(const StepPlan& plan) {
  Writer w;
  const auto way = [&](const auto& v) { w.put(v); };
  plan_fields(way, plan);
  way(static_cast<int64_t>(plan.starts.size()));
  for (const SequenceStart& s : plan.starts) {
    way(s.id), way(s.tokens), way(s.n_output), way(s.prompt_logprobs);
    sampling_fields(way, s.sampling);
    way(static_cast<int64_t>(s.sampling.logit_bias.size()));
    for (const auto& [id, bias] : s.sampling.logit_bias) way(id), way(bias);
  }
  way(static_cast<int64_t>(plan.grants.size()));
  for (const PageGrant& g : plan.grants) way(g.id), way(g.pages);
  way(plan.rows);
  return std::move(w.bytes);
}

StepPlan unpack_plan(std::span<const std::byte> bytes) {
  Reader r(bytes);
  StepPlan plan;
  const auto way = [&](auto& v) { r.get(v); };
  plan_fields(way, plan);
  const auto count = [&] {
    int64_t n = 0;
    r.get(n);
    CHECK(n >= 0 && static_cast<size_t>(n) <= bytes.size(), "a step plan's list of %lld", static_cast<long long>(n));
    return static_cast<size_t>(n);
  };
  plan.starts.resize(count());
  for (SequenceStart& s : plan.starts) {
    way(s.id), way(s.tokens), way(s.n_output), way(s.prompt_logprobs);
    sampling_fields(way, s.sampling);
    s.sampling.logit_bias.resize(count());
    for (auto& [id, bias] : s.sampling.logit_bias) way(id), way(bias);
  }
  plan.grants.resize(count());
  for (PageGrant& g : plan.grants) way(g.id), way(g.pages);
  way(plan.rows);
  CHECK(r.at_end(), "a step plan is followed by something else");
  return plan;
}

Json plan_json(const StepPlan& plan) {
  Json starts = Json::array(), grants = Json::array(), rows = Json::array();
  for (const SequenceStart& s : plan.starts)
    starts.push_back({{"id", s.id}, {"tokens", s.tokens.size()}, {"n_output", s.n_output}});
  for (const PageGrant& g : plan.grants) grants.push_back({{"id", g.id}, {"pages", g.pages}});
  for (const SequenceRows& r : plan.rows) rows.push_back({r.id, r.first, r.n, r.sample});
  return {{"step", plan.step}, {"ends", plan.ends}, {"starts", starts}, {"grants", grants}, {"rows", rows}};
}

}  // namespace rw
