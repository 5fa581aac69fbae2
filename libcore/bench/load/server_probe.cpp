#include "libcore/bench/load/server_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/net/http_fetch.h"

namespace rw {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
constexpr double kRounding = 1e-6;

// A server that has a name of one line is judged by that line's; its other names may count otherwise.
constexpr const char* kLevels[][6] = {
    {"rankwright_sequences_running", "rankwright_sequences_waiting", "rankwright_requests_live",
     "rankwright_http_connections"},
    {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"},
    {"sglang:num_running_reqs", "sglang:num_queue_reqs"},
    {"llamacpp:requests_processing", "llamacpp:requests_deferred"},
};

HttpFetched get(const LoadTarget& target, const std::string& path, double timeout_s) {
  HttpFetch fetch;
  fetch.url = target.url;
  while (fetch.url.ends_with('/')) fetch.url.pop_back();
  fetch.url += path;
  if (!target.api_key.empty()) fetch.headers.emplace_back("Authorization", "Bearer " + target.api_key);
  fetch.timeout_s = timeout_s;
  return http_fetch(fetch);
}

}  // namespace

ServedModelInfo parse_models(const std::string& text, const std::string& wanted, const std::string& where) {
  const Json json = parse_json(text, where);
  const auto data = json.find("data");
  if (!json.is_object() || data == json.end() || !data->is_array() || data->empty())
    fail(ErrorKind::input, "{}: expected {{\"data\": [{{\"id\": ...}}]}}, found {:.200}", where, text);
  std::string known;
  for (const Json& model : *data) {
    if (!model.is_object()) fail(ErrorKind::input, "{}: data: expected objects, found {}", where, model.type_name());
    ServedModelInfo info;
    info.id = json_string(model, "id", where);
    known += (known.empty() ? "" : ", ") + info.id;
    if (!wanted.empty() && info.id != wanted) continue;
    info.is_ours = json_string(model, "owned_by", where, "") == "rankwright";
    info.max_model_len = json_int(model, "max_model_len", where, 0);
    return info;
  }
  fail(ErrorKind::usage, "--model {}: expected a model that {} lists: {}", wanted, where, known);
}

ServedModelInfo ask_models(const LoadTarget& target, const std::string& wanted, double timeout_s) {
  const HttpFetched reply = get(target, "/v1/models", timeout_s);
  const std::string where = target.url + "/v1/models";
  if (reply.status == 404 && !wanted.empty()) {
    ServedModelInfo info;
    info.id = wanted;
    return info;
  }
  if (reply.status == 401 || reply.status == 403)
    fail(ErrorKind::runtime, "{}: the server wants another key ({}); --api-key or OPENAI_API_KEY", where, reply.status);
  if (reply.status != 200)
    fail(ErrorKind::runtime, "{}: expected 200, found {}: {:.200}{}", where, reply.status, reply.body,
         reply.status == 404 ? "; is it an OpenAI-compatible server? --model NAME if it does not list its models" : "");
  return parse_models(reply.body, wanted, where);
}

std::vector<ServerLevel> server_levels(const MetricsText& metrics) {
  std::vector<ServerLevel> levels;
  for (const auto& names : kLevels) {
    for (const char* name : names)
      if (name != nullptr && metrics.has(name)) levels.push_back({name, metrics.sum(name)});
    if (!levels.empty()) break;
  }
  if (metrics.has("rankwright_kv_pages"))
    levels.push_back({"rankwright_kv_pages in use", metrics.sum("rankwright_kv_pages") -
                                                        metrics.sum("rankwright_kv_free_pages") -
                                                        metrics.sum("rankwright_kv_cached_pages")});
  return levels;
}

AskedLevels ask_levels(const LoadTarget& target, double timeout_s) {
  AskedLevels asked;
  try {
    const HttpFetched reply = get(target, "/metrics", timeout_s);
    if (reply.status != 200) {
      asked.why = fmt::format("{}/metrics answered {}: {:.200}", target.url, reply.status, reply.body);
      return asked;
    }
    std::vector<ServerLevel> levels = server_levels(MetricsText::parse(reply.body, target.url + "/metrics"));
    if (levels.empty()) asked.why = target.url + "/metrics has no gauge that we know";
    else asked.levels = std::move(levels);
  } catch (const Error& error) {  // no reply; TensorRT-LLM has JSON there
    asked.why = error.what();
  }
  return asked;
}

std::vector<Leak> leaks_between(const std::vector<ServerLevel>& before, const std::vector<ServerLevel>& after) {
  std::vector<Leak> leaks;
  for (const ServerLevel& was : before) {
    const auto is = std::find_if(after.begin(), after.end(), [&](const ServerLevel& l) { return l.name == was.name; });
    const double now = is == after.end() ? std::numeric_limits<double>::quiet_NaN() : is->value;
    if (!(now <= was.value + kRounding)) leaks.push_back({was.name, was.value, now});
  }
  return leaks;
}

std::vector<Leak> wait_for_levels(const LoadTarget& target, const std::vector<ServerLevel>& before, double wait_s) {
  constexpr double kLeastAnswer_s = 1;
  const double end = now_s() + wait_s;
  for (;;) {
    const AskedLevels now = ask_levels(target, std::max(kLeastAnswer_s, end - now_s()));
    if (now.levels) {
      std::vector<Leak> leaks = leaks_between(before, *now.levels);
      if (leaks.empty() || now_s() > end) return leaks;
    } else if (now_s() > end) {
      fail(ErrorKind::runtime, "{}", now.why);
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

std::string leaks_text(const std::vector<Leak>& leaks) {
  std::string text;
  for (const Leak& leak : leaks) {
    text += text.empty() ? "" : ", ";
    text += std::isnan(leak.after) ? fmt::format("{} {:g} before, gone after", leak.name, leak.before)
                                   : fmt::format("{} {:g} before, {:g} after", leak.name, leak.before, leak.after);
  }
  return text;
}

}  // namespace rw
