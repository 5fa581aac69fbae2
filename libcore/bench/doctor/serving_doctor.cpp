#include "libcore/bench/doctor/serving_doctor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/bench/doctor/serve_records.h"
#include "libcore/bench/doctor/serving_facts.h"
#include "libcore/bench/doctor/serving_rules.h"
#include "libcore/net/http_fetch.h"
#include "libcore/net/url.h"

namespace rw {
namespace {

// Often enough that a queue that comes and goes is told from one that stays.
constexpr int kLooks = 15;

class Watcher {
 public:
  Watcher(std::string url, const ServerTarget& target) : target_(target) {
    while (url.ends_with('/')) url.pop_back();
    if (url.ends_with("/metrics")) url.resize(url.size() - 8);
    if (url.ends_with("/v1")) url.resize(url.size() - 3);
    watch_.url = url;
    watch_.max_model_len = std::numeric_limits<double>::quiet_NaN();
    parse_http_url(url);  // Error{usage} before anybody is asked
  }

  // Every Error but that nobody answers.
  ServerWatch watch() {
    try {
      look_around();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::runtime) throw;
      watch_.error = e.what();
      return watch_;
    }
    const double begin = now_s(), between = target_.window_s / (kLooks - 1);
    for (int i = 0; i < kLooks; ++i) {
      const double wait_s = begin + i * between - now_s();
      if (wait_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait_s));
      try {
        if (!take_look()) break;
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::runtime) throw;
        watch_.error = e.what();  // it went while it was watched
        break;
      }
    }
    return watch_;
  }

 private:
  HttpFetched get(const char* path) const {
    HttpFetch fetch;
    fetch.url = watch_.url + path;
    fetch.connect_timeout_s = fetch.timeout_s = target_.timeout_s;
    if (!target_.api_key.empty()) fetch.headers = {{"Authorization", "Bearer " + target_.api_key}};
    return http_fetch(fetch);
  }

  void look_around() {
    const double begin = now_s();
    const HttpFetched health = get("/health");
    watch_.ping_s.push_back(now_s() - begin);
    watch_.health_status = health.status;
    if (const Json said = Json::parse(health.body, nullptr, false); said.is_object()) {
      const auto text = [&](const char* key) {
        return said.contains(key) && said[key].is_string() ? said[key].get<std::string>() : std::string();
      };
      watch_.health_state = text("status");
      watch_.health_message = text("message");
    }
    for (int i = 0; i < 4; ++i) {
      const double asked = now_s();
      get("/health");
      watch_.ping_s.push_back(now_s() - asked);
    }
    if (const HttpFetched memory = get("/debug/memory"); memory.status == 200) watch_.memory = memory.body;
    if (const HttpFetched models = get("/v1/models"); models.status == 200)
      if (const Json list = Json::parse(models.body, nullptr, false);
          list.is_object() && list.contains("data") && list["data"].is_array() && !list["data"].empty()) {
        const Json& first = list["data"][0];
        if (first.is_object() && first.contains("max_model_len") && first["max_model_len"].is_number())
          watch_.max_model_len = first["max_model_len"];
      }
  }

  // False: it is not ready, and has no counters yet.
  bool take_look() {
    const HttpFetched reply = get("/metrics");
    if (reply.status == 401 || reply.status == 403)
      fail(ErrorKind::input, "{}/metrics: status {}: expected an API key that the server knows (--api-key)", watch_.url,
           reply.status);
    if (reply.status != 200)
      fail(ErrorKind::input, "{}/metrics: expected status 200 and Prometheus text, found status {}", watch_.url,
           reply.status);
    ServerLook look;
    look.at_s = now_s();
    const MetricsText text = MetricsText::parse(reply.body, watch_.url + "/metrics");
    look.samples = text.samples();
    if (!text.has("rankwright_sequences_running") && !text.has("vllm:num_requests_running")) {
      if (watch_.health_status >= 500) return false;
      fail(ErrorKind::input,
           "{}/metrics: expected series of dserve (rankwright_sequences_running) or of vLLM "
           "(vllm:num_requests_running), "
           "found neither in {} samples",
           watch_.url, look.samples.size());
    }
    watch_.looks.push_back(std::move(look));
    return true;
  }

  const ServerTarget& target_;
  ServerWatch watch_;
};

std::vector<ServerWatch> watch_all(const ServerTarget& target) {
  std::vector<Watcher> watchers;
  for (const std::string& url : target.urls) watchers.emplace_back(url, target);
  std::vector<std::future<ServerWatch>> futures;
  for (Watcher& w : watchers) futures.push_back(std::async(std::launch::async, [&w] { return w.watch(); }));
  for (const auto& f : futures) f.wait();  // all, before one of them throws
  std::vector<ServerWatch> all;
  for (auto& f : futures) all.push_back(f.get());
  if (!all.empty() &&
      std::all_of(all.begin(), all.end(), [](const ServerWatch& w) { return !w.error.empty() && w.looks.empty(); }))
    fail(ErrorKind::runtime, "{}{}", all[0].error,
         all.size() > 1 ? fmt::format(" (nor do the other {} servers answer)", all.size() - 1) : "");
  return all;
}

}  // namespace

Diagnosis doctor_server(const ServerTarget& target) {
  if (target.urls.empty() && target.out_dir.empty())
    fail(ErrorKind::usage, "expected the URL of a server or the folder of dserve --out, found neither");
  if (!(target.window_s > 0) || !(target.timeout_s > 0))
    fail(ErrorKind::usage, "--window-s: expected seconds above 0, found {}", target.window_s);
  Diagnosis d;
  d.kind = "server";
  for (const std::string& url : target.urls) d.target += (d.target.empty() ? "" : ", ") + url;
  if (d.target.empty()) d.target = target.out_dir.string();
  const std::vector<ServerWatch> servers = watch_all(target);
  d.facts = server_facts(servers);
  double requests = 0;
  if (const Fact* running = d.facts.find("queue.running")) requests += running->value;
  if (!target.urls.empty() && requests == 0)
    d.notes.emplace_back("nothing ran while the servers were watched: shares are those since their starts, if any");
  if (!target.out_dir.empty()) {
    const ServeRecords records = read_serve_records(target.out_dir);
    d.notes.insert(d.notes.end(), records.notes.begin(), records.notes.end());
    if (records.sequences.empty())
      d.notes.emplace_back("no spans.jsonl: dserve --log-spans shows where requests' time goes");
    if (records.steps.arrivals == 0)
      d.notes.emplace_back("no steps.jsonl: dserve --log-steps shows whether prompts share their beginnings");
    for (const auto& dump : records.dumps) d.notes.push_back("a dump after a failure: " + dump.string());
    add_record_facts(records, d.facts);
  }
  const std::string url = target.urls.empty() ? "http://HOST:PORT" : servers.front().url;
  d.findings = diagnose(serving_rules(), d.facts, {{"dir", target.out_dir.string()}, {"url", url}});
  return d;
}

}  // namespace rw
