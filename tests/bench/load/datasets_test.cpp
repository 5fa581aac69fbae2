#include "libcore/bench/load/datasets.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"
#include "libcore/bench/load/load_schedule.h"
#include "libcore/bench/load/request_body.h"

using namespace rw;

namespace {

DatasetSpec spec_of(const char* kind, int64_t n) {
  DatasetSpec s;
  s.kind = kind;
  s.n = n;
  s.input = {3, 17};
  s.output = {2, 5};
  s.vocab = 101;
  s.seed = 3;
  return s;
}

// How far two prompts agree.
int64_t common(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(std::min(a.size(), b.size())), b.begin()).first -
         a.begin();
}

std::string message_of(const auto& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

struct TempFile {
  explicit TempFile(const std::string& text) : path(std::filesystem::temp_directory_path() / "rw_datasets_test.jsonl") {
    std::ofstream(path) << text;
  }
  ~TempFile() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

}  // namespace

TEST_CASE("random prompts: lengths and ids within bounds, drawn evenly, repeatable") {
  const std::vector<PlannedPrompt> all = plan_prompts(spec_of("random", 2000));
  REQUIRE(all.size() == 2000);
  std::set<size_t> lengths;
  std::set<int64_t> outputs;
  std::set<int32_t> ids;
  for (const PlannedPrompt& p : all) {
    lengths.insert(p.ids.size());
    outputs.insert(p.max_tokens);
    ids.insert(p.ids.begin(), p.ids.end());
    CHECK(p.input_tokens == static_cast<int64_t>(p.ids.size()));
    CHECK(p.after == -1);
  }
  CHECK(lengths.size() == 15);
  CHECK(*lengths.begin() == 3);
  CHECK(*lengths.rbegin() == 17);
  CHECK(outputs == std::set<int64_t>{2, 3, 4, 5});
  CHECK(*ids.begin() == kFirstId);
  CHECK(*ids.rbegin() == 100);
  CHECK(ids.size() == 91);
  CHECK(plan_prompts(spec_of("random", 2000))[77].ids == all[77].ids);
  DatasetSpec again = spec_of("random", 2000);
  again.draw = 1;
  const std::vector<PlannedPrompt> other = plan_prompts(again);
  CHECK(other[77].ids.size() == all[77].ids.size());
  CHECK(other[77].max_tokens == all[77].max_tokens);
  CHECK(other[77].ids != all[77].ids);
}

TEST_CASE("shared prefixes: requests agree in as many tokens as was said, by turns") {
  DatasetSpec s = spec_of("shared-prefix", 12);
  s.input = {40, 60};
  s.prefix_len = 31;
  s.prefixes = 3;
  s.vocab = 100000;
  const std::vector<PlannedPrompt> all = plan_prompts(s);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) CHECK(common(all[i].ids, all[j].ids) == ((i - j) % 3 == 0 ? 31 : 0));
  s.input = {20, 20};  // shorter than the prefix
  for (const PlannedPrompt& p : plan_prompts(s)) CHECK(p.ids.size() == 20);
}

TEST_CASE("conversations: a turn's prompt holds the one before it and its planned answer") {
  DatasetSpec s = spec_of("multi-turn", 7);
  s.turns = 3;
  s.think_s = 0.25;
  s.vocab = 100000;
  const std::vector<PlannedPrompt> all = plan_prompts(s);
  REQUIRE(all.size() == 7);
  for (size_t i = 0; i < 7; ++i) {
    if (i % 3 == 0) {
      CHECK(all[i].after == -1);
      continue;
    }
    const PlannedPrompt &was = all[i - 1], &is = all[i];
    CHECK(is.after == static_cast<int64_t>(i) - 1);
    CHECK(is.due_s == 0.25);
    CHECK(common(was.ids, is.ids) == was.input_tokens);
    const int64_t fresh = is.input_tokens - was.input_tokens - was.max_tokens;
    CHECK(fresh >= 3);
    CHECK(fresh <= 17);
  }
  CHECK(common(all[0].ids, all[3].ids) == 0);
}

TEST_CASE("prompts of words: about as many as tokens, prefixes stay prefixes") {
  DatasetSpec s = spec_of("shared-prefix", 4);
  s.ids = false;
  s.input = {130, 130};
  s.prefix_len = 65;
  s.prefixes = 1;
  const std::vector<PlannedPrompt> all = plan_prompts(s);
  for (const PlannedPrompt& p : all) {
    CHECK(p.ids.empty());
    CHECK(std::count(p.text.begin(), p.text.end(), ' ') == 99);  // 130 / 1.3 words
  }
  const size_t same = static_cast<size_t>(
      std::mismatch(all[0].text.begin(), all[0].text.end(), all[1].text.begin()).first - all[0].text.begin());
  const auto words = std::count(all[0].text.begin(), all[0].text.begin() + static_cast<int64_t>(same), ' ');
  CHECK(words >= 50);
  CHECK(words <= 53);
}

TEST_CASE("traces: times, lengths, and blocks that agree") {
  const TempFile file(
      "{\"timestamp\": 1000, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [7, 8, 9]}\n"
      "{\"timestamp\": 3000, \"input_length\": 700, \"output_length\": 6, \"hash_ids\": [7, 4]}\n"
      "{\"timestamp\": 5000, \"input_length\": 600, \"output_length\": 7}\n");
  DatasetSpec s = spec_of("trace", 0);
  s.vocab = 100000;
  s.file = file.path.string();
  s.trace_speed = 2;
  const std::vector<PlannedPrompt> all = plan_prompts(s);
  REQUIRE(all.size() == 3);
  CHECK(all[0].due_s == 0);
  CHECK(all[1].due_s == 1);
  CHECK(all[2].due_s == 2);
  CHECK(all[0].ids.size() == 1100);
  CHECK(all[2].max_tokens == 7);
  CHECK(common(all[0].ids, all[1].ids) == 512);
  CHECK(common(all[0].ids, all[2].ids) == 0);
  std::set<int32_t> ids(all[0].ids.begin(), all[0].ids.end());
  CHECK(ids.size() > 1000);  // not one token over and over
  s.n = 2;
  CHECK(plan_prompts(s).size() == 2);
}

TEST_CASE("JSON lines: prompts, ids, messages, goldens, from the top again") {
  const TempFile file(
      "{\"prompt\": \"one two\", \"max_tokens\": 9, \"golden\": \" three\"}\n\n"
      "{\"prompt\": [11, 12, 13]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 1}");
  DatasetSpec s = spec_of("jsonl", 0);
  s.file = file.path.string();
  std::vector<PlannedPrompt> all = plan_prompts(s);
  REQUIRE(all.size() == 3);
  CHECK(all[0].text == "one two");
  CHECK(all[0].max_tokens == 9);
  CHECK(all[0].golden == " three");
  CHECK(all[1].ids == std::vector<int32_t>{11, 12, 13});
  CHECK(all[1].max_tokens >= 2);
  CHECK(all[2].messages == R"([{"role":"user","content":"hi"}])");
  s.n = 5;
  all = plan_prompts(s);
  REQUIRE(all.size() == 5);
  CHECK(all[3].text == "one two");
}

TEST_CASE("bad lines and ranges name what is wrong") {
  const auto lines = [](const char* text) { return message_of([&] { parse_prompt_lines(text, "f"); }); };
  CHECK(lines("").find("found nothing") != std::string::npos);
  CHECK(lines("[1]").find("f:1") != std::string::npos);
  CHECK(lines("{}").find("neither") != std::string::npos);
  CHECK(lines("\n{\"prompt\": \"a\", \"messages\": []}").find("f:2: expected either") != std::string::npos);
  CHECK(lines("{\"prompt\": [-1]}").find("token ids") != std::string::npos);
  CHECK(lines("{\"prompt\": \"\"}").find("expected text or token ids") != std::string::npos);
  CHECK(lines("{\"prompt\": \"a\", \"max_tokens\": -2}").find("max_tokens") != std::string::npos);
  CHECK(parse_length_range("7", "--x").high == 7);
  CHECK(parse_length_range("7..9", "--x").low == 7);
  for (const char* bad : {"", "0", "9..7", "7..", "..7", "7...9", "x", "1e9", "99999999999"})
    CHECK(message_of([&] { parse_length_range(bad, "--x"); }).find("--x: expected") == 0);
}

TEST_CASE("bodies: fields of ours only to a server of ours, none but OpenAI's when plain") {
  PlannedPrompt p;
  p.ids = {10, 11};
  p.max_tokens = 6;
  BodyOptions o;
  o.model = "m";
  Json body = Json::parse(request_body(p, o));
  CHECK(body["prompt"] == Json({10, 11}));
  CHECK(body["max_tokens"] == 6);
  CHECK(body["min_tokens"] == 6);
  CHECK(body["ignore_eos"] == true);
  CHECK(body["stream_options"]["continuous_usage_stats"] == true);
  CHECK_FALSE(body.contains("timings"));
  o.ours = true;
  o.cached = false;
  body = Json::parse(request_body(p, o));
  CHECK(body["timings"] == true);
  CHECK(body["return_token_ids"] == true);
  CHECK(body["cache_prompt"] == false);
  o.plain = true;
  body = Json::parse(request_body(p, o));
  std::set<std::string> keys;
  for (const auto& [key, value] : body.items()) keys.insert(key);
  CHECK(keys == std::set<std::string>{"model", "prompt", "max_tokens", "temperature", "stream", "stream_options"});
  o.extra = R"({"temperature": null, "top_k": 3, "stream_options": {"x": 1}})";
  body = Json::parse(request_body(p, o));
  CHECK_FALSE(body.contains("temperature"));
  CHECK(body["top_k"] == 3);
  CHECK(body["stream_options"]["include_usage"] == true);
  CHECK(body["stream_options"]["x"] == 1);
  o.chat = true;
  CHECK(message_of([&] { request_body(p, o); }).find("--prompt-form text") != std::string::npos);
  p.ids.clear();
  p.text = "hello";
  CHECK(Json::parse(request_body(p, o))["messages"][0]["content"] == "hello");
}

TEST_CASE("schedules: conversations come at their rate, faults are a share, lengths are checked") {
  ServeLoadSpec spec;
  spec.url = "http://x:1";
  spec.dataset = "multi-turn";
  spec.request_rate = "12";
  spec.num_prompts = 300;
  spec.input_len = "5";
  spec.output_len = "4";
  spec.disconnect_after = 2;
  spec.disconnect_share = 0.25;
  ServedModelInfo model;
  model.id = "m";
  const std::vector<LoadRequest> schedule = load_schedule(spec, plan_serve_load(spec), model);
  REQUIRE(schedule.size() == 300);
  int64_t hung_up = 0;
  for (const LoadRequest& r : schedule) {
    CHECK((r.index % 3 == 0) == (r.after == -1));
    hung_up += r.disconnect_after_tokens == 2;
  }
  CHECK(schedule[297].due_s == doctest::Approx(99 / 4.0));  // 100 conversations at 4 a second
  CHECK(hung_up == 75);
  const std::vector<LoadRequest> alone = golden_schedule(spec, plan_serve_load(spec), model, 50);
  CHECK(alone.size() == 50);
  for (const LoadRequest& r : alone) CHECK(schedule[static_cast<size_t>(r.index)].disconnect_after_tokens == -1);
  model.max_model_len = 22;  // third turns have 23 prompt tokens
  CHECK(message_of([&] { load_schedule(spec, plan_serve_load(spec), model); }).find("at most 22") != std::string::npos);
}

TEST_CASE("plans: what contradicts itself is told") {
  const auto refusal = [](const auto& change) {
    ServeLoadSpec spec;
    spec.url = "http://x:1";
    change(spec);
    return message_of([&] { plan_serve_load(spec); });
  };
  CHECK(refusal([](ServeLoadSpec&) {}) == "no error");
  CHECK(refusal([](ServeLoadSpec& s) { s.ramp_up = "linear"; }).find("--ramp-from") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) { s.ramp_to = 3; }).find("--ramp-up") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) { s.find_rate = true; }).find("--slo-ttft-ms") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) { s.duration = 3; }).find("--request-rate") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) { s.dataset = "jsonl"; }).find("--dataset-file") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) { s.trace = "/nowhere"; }).find("--trace /nowhere") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) { s.request_rate = "fast"; }).find("--request-rate") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) { s.extra_body = "[1]"; }).find("--extra-body") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) { s.url = "https://x"; }).find("http://") != std::string::npos);
  CHECK(refusal([](ServeLoadSpec& s) {
          s.endpoint = "chat";
          s.prompt_form = "ids";
        }).find("--endpoint completions") != std::string::npos);
  ServeLoadSpec spec;
  spec.max_concurrency = 4;
  CHECK(plan_serve_load(spec).closed_loop);
  spec.request_rate = "2";
  CHECK_FALSE(plan_serve_load(spec).closed_loop);
  CHECK_FALSE(plan_serve_load(spec).open_loop);
  spec.max_concurrency = 0;
  CHECK(plan_serve_load(spec).open_loop);
  spec.api_key = "secret";
  CHECK(public_config(spec).dump().find("secret") == std::string::npos);
}
