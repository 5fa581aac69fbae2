#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "libcore/base/error.h"
#include "libcore/bench/doctor/serve_records.h"
#include "libcore/bench/doctor/serving_doctor.h"
#include "libcore/bench/doctor/serving_facts.h"
#include "libcore/bench/doctor/serving_facts_series.h"
#include "libcore/bench/doctor/serving_rules.h"
#include "libcore/net/http_server.h"

namespace fs = std::filesystem;
using doctest::Approx;
using rw::Diagnosis;
using rw::Facts;
using rw::Finding;
using rw::MetricSample;
using rw::ServerLook;
using rw::ServerWatch;

namespace {

MetricSample sample(const std::string& name, double value, std::map<std::string, std::string> labels = {}) {
  MetricSample s;
  s.name = name;
  s.labels = std::move(labels);
  s.value = value;
  return s;
}

// A histogram of bounds 0.01, 0.1, 1, +Inf with so many observations in each bucket.
void add_histogram(std::vector<MetricSample>& to, const std::string& name, const std::vector<double>& counts,
                   double sum) {
  const char* bounds[] = {"0.01", "0.1", "1", "+Inf"};
  double cumulated = 0;
  for (size_t i = 0; i < 4; ++i) {
    cumulated += counts[i];
    to.push_back(sample(name + "_bucket", cumulated, {{"le", bounds[i]}}));
  }
  to.push_back(sample(name + "_sum", sum));
  to.push_back(sample(name + "_count", cumulated));
}

using Fill = std::function<void(std::vector<MetricSample>&, int look)>;

ServerWatch watch(const Fill& fill, int n_looks = 5) {
  ServerWatch w;
  w.url = "http://h:1";
  w.health_status = 200;
  w.health_state = "ok";
  w.max_model_len = std::nan("");
  for (int i = 0; i < n_looks; ++i) {
    ServerLook look;
    look.at_s = 100 + i;
    look.samples = {sample("rankwright_sequences_running", 0), sample("rankwright_sequences_waiting", 0)};
    fill(look.samples, i);
    w.looks.push_back(look);
  }
  return w;
}

double value(const Facts& facts, const std::string& name) {
  const rw::Fact* f = facts.find(name);
  return f == nullptr ? std::nan("") : f->value;
}

std::vector<std::string> found(const Facts& facts) {
  std::vector<std::string> ids;
  for (const Finding& f : rw::diagnose(rw::serving_rules(), facts, {{"url", "http://h:1"}, {"dir", "d"}}))
    if (f.severity != rw::Severity::info) ids.push_back(f.id);
  return ids;
}

Facts facts_of(const std::vector<std::pair<std::string, double>>& values) {
  Facts facts;
  for (const auto& [name, v] : values) facts.set(name, {.value = v, .text = "", .where = "here"});
  return facts;
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("serving_doctor_" + std::to_string(std::random_device()()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("histograms: quantiles as Prometheus interpolates, by hand") {
  std::vector<MetricSample> samples;
  add_histogram(samples, "vllm:x", {10, 20, 10, 0}, 7);
  ServerWatch w = watch([&](auto& to, int) { to.insert(to.end(), samples.begin(), samples.end()); });
  const rw::BucketCounts h = rw::ServerSeries(w).histogram(0, {"rankwright_x", "vllm:x"});
  CHECK(h.count == 40);
  CHECK(h.sum == 7);
  CHECK(h.quantile(0.25) == Approx(0.01));              // the 10th of 40
  CHECK(h.quantile(0.5) == Approx(0.01 + 0.09 * 0.5));  // the 20th: half of the way through the second bucket
  CHECK(h.quantile(0.875) == Approx(0.1 + 0.9 * 0.5));  // the 35th
  CHECK(h.above(0.1).count == 10);
  CHECK(h.above(0.1).sum == Approx(5.5));  // ten times the middle of 0.1 and 1
  CHECK(h.above(0.05).count == 10);        // a bucket that begins below the bound is not above it
  CHECK(h.above(2).count == 0);
  CHECK(std::isnan(rw::BucketCounts().quantile(0.5)));
  CHECK(rw::ServerSeries(w).histogram(0, {"nothing"}).upper.empty());
}

TEST_CASE("shares are of the window where enough happened in it, else of the life, else not known") {
  const auto ends = [](double stop0, double stop1, double abort0, double abort1) {
    return watch([=](auto& to, int look) {
      const char* name = "rankwright_sequences_finished_total";
      to.push_back(sample(name, look == 0 ? stop0 : stop1, {{"reason", "stop"}}));
      to.push_back(sample(name, look == 0 ? abort0 : abort1, {{"reason", "abort"}}));
    });
  };
  const Facts window = rw::server_facts({ends(1000, 1015, 0, 5)});
  CHECK(value(window, "requests.cancelled_share") == Approx(0.25));
  CHECK(window.find("requests.cancelled_share")->where.find("4.0 s") != std::string::npos);
  const Facts life = rw::server_facts({ends(30, 34, 10, 15)});
  CHECK(value(life, "requests.cancelled_share") == Approx(15.0 / 49));
  CHECK(life.find("requests.cancelled_share")->where.find("since the start") != std::string::npos);
  CHECK(rw::server_facts({ends(3, 5, 2, 3)}).find("requests.cancelled_share") == nullptr);
  // Two servers are one service: 20 of 40 + 0 of 40.
  CHECK(value(rw::server_facts({ends(0, 20, 0, 20), ends(0, 40, 0, 0)}), "requests.cancelled_share") == Approx(0.25));
  CHECK(found(window) == std::vector<std::string>{"serve.disconnects"});
}

TEST_CASE("vLLM's names are read as ours, older ones too") {
  ServerWatch w = watch([](auto& to, int look) {
    to.clear();
    const double t = look;
    to.push_back(sample("vllm:num_requests_running", 4));
    to.push_back(sample("vllm:num_requests_waiting", 9));
    to.push_back(sample("vllm:gpu_cache_usage_perc", 0.97));
    to.push_back(sample("vllm:num_preemptions_total", 3 * t));
    to.push_back(sample("vllm:request_success_total", 5 * t, {{"finished_reason", "stop"}}));
    to.push_back(sample("vllm:gpu_prefix_cache_queries_total", 1000 * t));
    to.push_back(sample("vllm:gpu_prefix_cache_hits_total", 250 * t));
    to.push_back(sample("vllm:prompt_tokens_total", 1000 * t));
    to.push_back(sample("vllm:cache_config_info", 1, {{"block_size", "16"}, {"num_gpu_blocks", "100"}}));
    add_histogram(to, "vllm:request_queue_time_seconds", {0, 0, 3 * t, 0}, 1.5 * t);
    add_histogram(to, "vllm:request_prefill_time_seconds", {0, 3 * t, 0, 0}, 0.5 * t);
    add_histogram(to, "vllm:e2e_request_latency_seconds", {0, 0, 3 * t, 0}, 4 * t);
  });
  w.max_model_len = 1000;
  const Facts f = rw::server_facts({w});
  CHECK(value(f, "kv.usage") == Approx(0.97));
  CHECK(value(f, "kv.preemptions_per_sequence") == Approx(0.6));
  CHECK(value(f, "kv.preemptions_per_s") == Approx(3));
  CHECK(value(f, "prefix.hit_share") == Approx(0.25));
  CHECK(value(f, "queue.share_of_ttft") == Approx(0.75));
  CHECK(value(f, "queue.mean_s") == Approx(0.5));
  CHECK(value(f, "kv.limited_share") == 1);
  CHECK(value(f, "kv.full_length_sequences") == Approx(1.6));
  CHECK(found(f)[0] == "serve.kv_preemption");
  CHECK(f.find("kv.preempted_share") == nullptr);  // vLLM does not say
}

TEST_CASE("seats, pages or prompts: what a queue waits for") {
  const auto queue = [](std::vector<double> running, double usage) {
    return rw::server_facts({watch([=](auto& to, int look) {
      to.clear();
      const double t = look;
      to.push_back(sample("rankwright_sequences_running", running[static_cast<size_t>(look)]));
      to.push_back(sample("rankwright_sequences_waiting", 7));
      to.push_back(sample("rankwright_kv_usage_ratio", usage));
      add_histogram(to, "rankwright_request_queue_seconds", {0, 0, 5 * t, 0}, 2.5 * t);
      add_histogram(to, "rankwright_request_prefill_seconds", {0, 5 * t, 0, 0}, 0.25 * t);
    })});
  };
  CHECK(found(queue({4, 4, 4, 4, 4}, 0.3))[0] == "serve.seats");
  CHECK(found(queue({4, 4, 4, 4, 4}, 0.9))[0] == "serve.kv_full");
  CHECK(found(queue({4, 3, 4, 5, 4}, 0.95))[0] == "serve.kv_full");
  CHECK(found(queue({2, 3, 1, 5, 4}, 0.3))[0] == "serve.prefill_bound");
}

TEST_CASE("requests by status: health checks are no requests, each status has its finding") {
  const auto http = [](const char* status, double n) {
    return rw::server_facts({watch([=](auto& to, int look) {
      const char* name = "rankwright_http_requests_total";
      to.push_back(sample(name, 500 * look, {{"route", "/health"}, {"status", "503"}}));
      to.push_back(sample(name, look * 20, {{"route", "/v1/completions"}, {"status", "200"}}));
      to.push_back(sample(name, look * n, {{"route", "/v1/completions"}, {"status", status}}));
    })});
  };
  CHECK(value(http("400", 5), "http.refused_share") == Approx(0.2));
  CHECK(http("400", 5).find("http.refused_share")->text == "status 400 on /v1/completions: 20 of 100 requests");
  CHECK(found(http("400", 5)) == std::vector<std::string>{"serve.bad_requests"});
  CHECK(found(http("401", 5)) == std::vector<std::string>{"serve.unauthorized"});
  CHECK(found(http("500", 5)) == std::vector<std::string>{"serve.failed_requests"});
  CHECK(found(http("499", 5)).empty());
  CHECK(found(http("400", 0.5)).empty());
}

TEST_CASE("balance: all on one of three; even loads and idle ones are well") {
  const auto server = [](double running, double tokens) {
    return watch([=](auto& to, int look) {
      to.clear();
      to.push_back(sample("rankwright_sequences_running", running));
      to.push_back(sample("rankwright_sequences_waiting", 0));
      to.push_back(sample("rankwright_generation_tokens_total", tokens * look));
    });
  };
  const Facts f = rw::server_facts({server(9, 100), server(0, 0), server(0, 0)});
  CHECK(value(f, "replicas.imbalance") == Approx(3));
  CHECK(value(f, "replicas.load") == Approx(3));
  CHECK(found(f) == std::vector<std::string>{"serve.imbalance"});
  CHECK(found(rw::server_facts({server(3, 1), server(4, 1), server(3, 1)})).empty());
  CHECK(found(rw::server_facts({server(0, 0), server(0, 0)})).empty());
  CHECK(found(rw::server_facts({server(1, 0), server(0, 0)})).empty());  // one request is somewhere
}

TEST_CASE("health: who failed, and how") {
  ServerWatch w = watch([](auto&, int) {});
  w.health_status = 503;
  w.health_state = "failed";
  w.health_message = "world: rank 1 (host n2) has died";
  CHECK(found(rw::server_facts({w})) == std::vector<std::string>{"serve.rank_lost"});
  w.health_message = "the weights are damaged";
  CHECK(found(rw::server_facts({w})) == std::vector<std::string>{"serve.engine_failed"});
  w.health_state = "stalled";
  CHECK(found(rw::server_facts({w})) == std::vector<std::string>{"serve.stalled"});
  w.health_state = "loading";
  CHECK(found(rw::server_facts({w})).empty());
  ServerWatch gone;
  gone.url = "http://h:2";
  gone.error = "refused";
  const Facts f = rw::server_facts({watch([](auto&, int) {}), gone});
  CHECK(found(f) == std::vector<std::string>{"serve.replica_down"});
  CHECK(f.find("replicas.down")->text == "http://h:2: refused");
}

TEST_CASE("a server that was started anew counts from nothing") {
  const Facts f = rw::server_facts({watch([](auto& to, int look) {
    to.push_back(sample("rankwright_generation_tokens_total", look == 4 ? 50 : 1000));
    to.push_back(sample("rankwright_sequences_finished_total", look == 4 ? 20 : 900, {{"reason", "abort"}}));
  })});
  CHECK(value(f, "requests.cancelled_share") == 1);
  CHECK(value(f, "server.restarted") == 1);
}

TEST_CASE("rules: each fact alone, beyond and within its threshold") {
  using Values = std::vector<std::pair<std::string, double>>;
  const std::vector<std::pair<const char*, Values>> cases = {
      {"serve.engine_errors", {{"requests.error_share", 0.01}}},
      {"serve.receive", {{"receive.share_of_ttft", 0.6}, {"receive.mean_s", 0.2}}},
      {"serve.worker_queue", {{"http.worker_queue_s", 0.6}}},
      {"serve.tokenize", {{"tokenize.share_of_ttft", 0.4}, {"tokenize.p95_s", 0.06}}},
      {"serve.slow_readers", {{"http.slow_reader_share", 0.03}}},
      {"serve.network", {{"stream.lag_share", 0.4}, {"stream.lag_p95_s", 0.6}}},
      {"serve.slow_probe", {{"http.probe_s", 0.3}}},
      {"serve.silent", {{"engine.heartbeat_s", 6}}},
      {"serve.killed", {{"server.killed", 1}}},
      {"serve.cpu", {{"step.slowdown", 1.6}}},
      {"serve.kv_alert", {{"alert.kv_usage", 1}, {"alert.queue_s", 1}}},
      {"serve.queueing", {{"queue.share_of_ttft", 0.6}, {"queue.mean_s", 0.2}}},
      {"serve.queue_refusals", {{"requests.queue_full_share", 0.02}}},
      {"serve.slo_refusals", {{"requests.too_slow_share", 0.06}}},
      {"serve.too_long", {{"requests.too_long_share", 0.06}}},
      {"serve.prefill_stalls",
       {{"itl.stalled_share", 0.4},
        {"itl.stall_s", 0.06},
        {"prefill.chunk_over_gap", 5},
        {"prefill.chunk_over_stall", 1},
        {"prefill.chunk_s", 0.1}}},
      {"serve.prefill_stalls_log", {{"step.stalled_share", 0.4}, {"step.stall_s", 0.06}}},
      {"serve.gaps", {{"itl.stalled_share", 0.4}, {"itl.stall_s", 0.06}, {"prompt.p99_tokens", 2000}}},
      {"serve.cache_off", {{"prefix.off", 1}, {"prefix.shared_share", 0.4}}},
      {"serve.stampede", {{"prefix.stampede", 4}}},
      {"serve.cache_misses", {{"prefix.missed_share", 0.4}}},
      {"serve.cache_drop", {{"prefix.drop", 0.4}}},
  };
  for (const auto& [id, values] : cases) {
    CAPTURE(std::string(id));
    CHECK(found(facts_of(values)) == std::vector<std::string>{id});
    // Half of every value is well, but for what must only be there.
    Values half = values;
    bool can_be_well = true;
    for (auto& [name, v] : half) {
      can_be_well &= name != "server.killed" && !name.starts_with("alert.") && name != "requests.error_share";
      v /= 2;
    }
    if (can_be_well) CHECK(found(facts_of(half)).empty());
  }
  CHECK(found(Facts()).empty());
  // At its limit, but fast enough: worth a word, no warning.
  const auto at_limit = rw::diagnose(rw::serving_rules(),
                                     facts_of({{"queue.waiting_share", 1},
                                               {"queue.seats_spread", 0},
                                               {"queue.share_of_ttft", 0.9},
                                               {"queue.seats", 2},
                                               {"queue.mean_s", 0.03}}),
                                     {{"url", "http://h:1"}});
  REQUIRE(at_limit.size() == 1);
  CHECK(at_limit[0].id == "serve.at_limit");
  CHECK(at_limit[0].severity == rw::Severity::info);
}

TEST_CASE("rules: causes and effects name rules that there are") {
  std::vector<std::string> ids;
  for (const rw::Rule& r : rw::serving_rules()) ids.emplace_back(r.id);
  for (const rw::Rule& r : rw::serving_rules()) {
    CAPTURE(std::string(r.id));
    CHECK(std::count(ids.begin(), ids.end(), r.id) == 1);
    for (const char* cause : r.effect_of) CHECK(std::count(ids.begin(), ids.end(), cause) == 1);
  }
}

TEST_CASE("records: events, spans") {
  const Folder folder;
  CHECK_THROWS_AS(rw::read_serve_records(folder.path()), rw::Error);
  CHECK_THROWS_AS(rw::read_serve_records(folder.path() / "none"), rw::Error);
  folder.write("events.jsonl",
               "{\"time\":\"T1\",\"event\":\"start\",\"url\":\"u\",\"max_model_len\":512}\n"
               "{\"time\":\"T2\",\"event\":\"start\",\"url\":\"u\",\"max_model_len\":512}\n"
               "{\"event\":\"alert\",\"name\":\"kv_usage\",\"state\":\"raised\",\"worst\":0.99,\"above\":0.95}\n"
               "{\"event\":\"alert\",\"name\":\"kv_usage\",\"state\":\"cleared\",\"worst\":1,\"above\":0.95}\n"
               "{\"event\":\"failure\",\"message\":\"rank 1 (host b) has died\"}\n"
               "[1]\n{\"torn");
  std::string spans;
  for (int i = 0; i < 12; ++i)
    spans +=
        "{\"request_id\":\"r\",\"sequence\":0,\"finish_reason\":\"" + std::string(i < 3 ? "abort" : "stop") +
        "\",\"prompt_tokens\":10,\"cached_tokens\":0,\"completion_tokens\":5,\"preemptions\":1,\"spans\":["
        "{\"name\":\"receive\",\"start_ms\":0,\"end_ms\":1},{\"name\":\"tokenize\",\"start_ms\":1,\"end_ms\":11},"
        "{\"name\":\"queue\",\"start_ms\":11,\"end_ms\":71},{\"name\":\"prefill\",\"start_ms\":71,\"end_ms\":91},"
        "{\"name\":\"decode\",\"start_ms\":91,\"end_ms\":191},{\"name\":\"preempted\",\"start_ms\":100,\"end_ms\":110},"
        "{\"name\":\"preempted\",\"start_ms\":120,\"end_ms\":130},{\"name\":\"stream\",\"start_ms\":91,\"end_ms\":241}]"
        "}\n";
  folder.write("spans.jsonl", spans);
  const rw::ServeRecords r = rw::read_serve_records(folder.path());
  REQUIRE(r.sequences.size() == 12);
  CHECK(r.sequences[0].preempted_s == Approx(0.02));
  CHECK(r.sequences[0].lag_s == Approx(0.05));
  CHECK(r.steps.arrivals == 0);
  REQUIRE(r.notes.size() == 1);
  CHECK(r.notes[0] == "events.jsonl: 2 lines are no JSON objects (cut off?)");
  Facts f;
  f.set("requests.error_share", {.value = 0.5, .text = "", .where = "live"});
  rw::add_record_facts(r, f);
  CHECK(value(f, "requests.error_share") == 0.5);  // what the server itself says stands
  CHECK(value(f, "requests.cancelled_share") == Approx(0.25));
  CHECK(value(f, "queue.share_of_ttft") == Approx(60.0 / 80));
  CHECK(value(f, "tokenize.share_of_ttft") == Approx(10.0 / 91));
  CHECK(value(f, "kv.preempted_share") == Approx(20.0 / 191));
  CHECK(value(f, "stream.lag_share") == Approx(50.0 / 191));
  CHECK(value(f, "server.killed") == 1);
  CHECK(f.find("server.killed")->text == "the next start was at T2");
  CHECK(value(f, "server.rank_lost") == 1);
  CHECK(value(f, "alert.kv_usage") == 1);
}

TEST_CASE("records: the step log, by hand") {
  const Folder folder;
  std::string log =
      "{\"format\":1,\"n_pages\":100,\"block_tokens\":2,\"max_seqs\":8,\"max_batch_tokens\":64,\"itl_budget_s\":0,"
      "\"max_preemptions\":3,\"prefix_cache\":true}\n";
  const auto add = [&](int id, const std::string& prompt, const char* salt = "") {
    log += "{\"add\":" + std::to_string(id) + ",\"prompt\":[" + prompt +
           "],\"max_tokens\":4,\"prompt_logprobs\":-1,\"cache\":true,\"salt\":\"" + salt + "\",\"priority\":0}\n";
  };
  const auto step = [&](const std::string& rows, double seconds) {
    log += "{\"plan\":{\"step\":0,\"ends\":[],\"starts\":[],\"grants\":[],\"rows\":[" + rows + "]}}\n";
    log += "{\"seconds\":" + std::to_string(seconds) + ",\"drawn\":[]}\n";
  };
  add(1, "1,2,3,4,5,6,7,8,9");              // pages 12 34 56 78, and 9
  add(2, "1,2,3,4,5,6,7,8,5");              // shares 8 of its 9
  add(3, "1,2,3,4,9,9,9,9,9");              // shares 4 of its 9
  add(4, "1,2,3,4,5,6,7,8,9", "s");         // another salt: shares nothing
  add(5, "7");                              // no page
  step("[1,0,9,true],[2,0,5,false]", 0.5);  // both compute the same beginning
  step("[2,5,4,true],[3,4,5,true]", 0.1);   // 3 begins behind 4 cached tokens
  for (int i = 0; i < 30; ++i) step("[1," + std::to_string(9 + i % 2) + ",1,true]", 0.01);
  for (int i = 0; i < 30; ++i) step("[1," + std::to_string(9 + i % 2) + ",1,true]", 0.03);
  step("[1,10,1,true],[5,0,1,true]", 1.3);  // one token of prompt is prefill too
  log += "{\"end\":1}\n{\"end\":77}\n{\"add\":9}\n{\"plan\":{}}\n{\"half";
  folder.write("steps.jsonl", log);
  const rw::StepFacts s = rw::read_serve_records(folder.path()).steps;
  CHECK(s.arrivals == 5);
  CHECK(s.block_tokens == 2);
  CHECK(s.shared_share == Approx(12.0 / 37));
  CHECK(s.cached_share == Approx(4.0 / 28));  // 1, 2, 3 and 5 have begun
  CHECK(s.stampede == 2);
  CHECK(s.slowdown == Approx(3));
  CHECK(s.decode_step_s == Approx(0.02));  // median of 30 of 0.01 and 30 of 0.03
  CHECK(s.stall_s == Approx(1.3));
  CHECK(s.stalled_share == Approx(1.3 / 2.5));  // of steps with decodes: 60 * 0.02 and this one
}

TEST_CASE("a server that is none of those known, one with a key, none at all") {
  const auto serve = [](int status, const std::string& text) {
    auto server = std::make_unique<rw::HttpServer>(rw::HttpServerSpec());
    server->route("GET", "/health", rw::HttpWhere::io,
                  [](const rw::HttpRequest&, const rw::HttpReply& reply) { reply.send(200, "{\"status\":\"ok\"}"); });
    server->route("GET", "/metrics", rw::HttpWhere::io, [=](const rw::HttpRequest& r, const rw::HttpReply& reply) {
      const std::string* key = r.header("authorization");
      if (status == 401 && key != nullptr && *key == "Bearer secret") reply.send(200, text, "text/plain");
      else reply.send(status, text, "text/plain");
    });
    return server;
  };
  const auto ask = [](int port, const std::string& key) {
    rw::ServerTarget t;
    t.urls = {"http://127.0.0.1:" + std::to_string(port) + "/v1/"};
    t.api_key = key;
    t.window_s = 0.05;
    return rw::doctor_server(t);
  };
  const std::string good = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n";
  const auto complains = [&](int status, const std::string& text, const char* part) {
    const auto server = serve(status, text);
    const int port = server->start();
    try {
      ask(port, "");
      CHECK_MESSAGE(false, "expected an error");
    } catch (const rw::Error& e) {
      CHECK(e.kind() == rw::ErrorKind::input);
      CHECK(std::string(e.what()).find(part) != std::string::npos);
    }
    server->stop(0);
  };
  complains(200, "other_metric 1\n", "found neither");
  complains(200, "a{b=\"", "/metrics");
  complains(404, "", "status 404");
  complains(401, good, "--api-key");
  const auto server = serve(401, good);
  const int port = server->start();
  const Diagnosis d = ask(port, "secret");
  CHECK(d.kind == "server");
  CHECK(d.findings.empty());
  REQUIRE(d.notes.size() == 1);
  CHECK(d.notes[0].find("nothing ran") == 0);
  server->stop(0);
  CHECK_THROWS_AS(ask(port, ""), rw::Error);  // gone
  CHECK_THROWS_AS(rw::doctor_server({}), rw::Error);
  rw::ServerTarget still;
  still.urls = {"http://127.0.0.1:1"};
  still.window_s = 0;
  CHECK_THROWS_AS(rw::doctor_server(still), rw::Error);
}
