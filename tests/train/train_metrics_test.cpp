// What a scrape of a training run shows is what its metrics.jsonl adds up to.
#include "libcore/train/train_metrics.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/data/token_file.h"
#include "libcore/text/tokenizer_json.h"
#include "libcore/train/trainer.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct Reply {
  std::string head, body;
};
Reply http_get(int port, const std::string& path) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  REQUIRE(::send(fd, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size()));
  std::string all;
  char piece[4096];
  for (ssize_t n; (n = ::recv(fd, piece, sizeof piece, 0)) > 0;) all.append(piece, static_cast<size_t>(n));
  ::close(fd);
  const size_t cut = all.find("\r\n\r\n");
  REQUIRE(cut != std::string::npos);
  return {all.substr(0, cut), all.substr(cut + 4)};
}

// "name{labels}" -> value.
std::map<std::string, double> samples(const std::string& text) {
  std::map<std::string, double> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    found[line.substr(0, space)] = std::strtod(line.c_str() + space + 1, nullptr);
  }
  return found;
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("train_metrics_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

std::string write_tokens(const fs::path& folder) {
  const std::string file = (folder / "tokens.h5").string();
  TokenFileWriter writer(file, 256, byte_tokenizer_json(), "bytes");
  std::vector<int32_t> tokens;
  for (int i = 0; i < 2003; ++i) tokens.push_back((i * 31 + i / 7) % 251);
  writer.add_document(tokens, 2003);
  writer.finish();
  return file;
}

}  // namespace

TEST_CASE("after N steps the scraped totals are the sums over metrics.jsonl") {
  const Folder folder;
  TrainSpec spec;
  spec.model = std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/configs/models/tiny-llama.json";
  spec.data = {write_tokens(folder.path)};
  spec.out = (folder.path / "run").string();
  spec.steps = 7;
  spec.seq_len = 13;
  spec.micro_batch = 3;
  spec.precision = "f16";
  spec.threads = 1;
  spec.zero = 1;
  spec.checkpoint_every = "3";
  spec.checkpoint_mode = "sync";
  spec.val_fraction = 0.1;
  spec.eval_every = 4;
  spec.peak_flops = 1e10;
  spec.metrics_port = "auto";
  spec.comm_timeout = 60;
  std::string text, health;
  int port = 0;
  run_thread_ranks(2, [&](Comm& world) {
    TrainObserver observer;
    observer.note = [&](const std::string& line) {
      if (const size_t at = line.find("127.0.0.1:"); line.starts_with("metrics:") && at != std::string::npos)
        port = std::atoi(line.c_str() + at + 10);
    };
    observer.step = [&](const StepReport& report) {
      if (report.step != 7) return;
      const Reply reply = http_get(port, "/metrics");
      CHECK(reply.head.starts_with("HTTP/1.1 200"));
      CHECK(reply.head.find("text/plain; version=0.0.4") != std::string::npos);
      text = reply.body;
      health = http_get(port, "/health").body;
      CHECK(http_get(port, "/nothing").head.starts_with("HTTP/1.1 404"));
    };
    train(spec, world, observer);
  });
  REQUIRE(port > 0);
  CHECK(health == R"({"status":"ok","state":"training"})");
  const std::map<std::string, double> now = samples(text);
  const auto value = [&](const std::string& name) {
    const auto at = now.find("rankwright_train_" + name);
    CAPTURE(name);
    REQUIRE(at != now.end());
    return at->second;
  };

  std::map<std::string, double> sums;
  int64_t n = 0;
  double step_s = 0;
  Json last;
  std::ifstream metrics(fs::path(spec.out) / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line); ++n) {
    last = Json::parse(line);
    step_s += last["step_s"].get<double>();
    for (const auto& [category, s] : last["seconds"].items())
      sums["seconds_total{category=\"" + category + "\"}"] += s.get<double>();
    for (const char* what : {"calls", "bytes"})
      for (const auto& [key, count] : last["communication"][what].items()) {
        const size_t dot = key.find('.');
        sums[std::string("communication_") + what + "_total{group=\"" + key.substr(0, dot) + "\",op=\"" +
             key.substr(dot + 1) + "\"}"] += count.get<double>();
      }
    sums["communication_exposed_seconds_total"] += last["communication"]["exposed_s"].get<double>();
    sums["communication_seconds_total"] += last["communication"]["total_s"].get<double>();
    sums["model_flops_total"] += last["model_flops"].get<double>();
  }
  REQUIRE(n == 7);
  CHECK(sums.size() > 10);  // both groups' calls and bytes are among them
  for (const auto& [name, sum] : sums) {
    CAPTURE(name);
    CHECK(value(name) == doctest::Approx(sum).epsilon(1e-9));
  }
  CHECK(value("steps_total") == 7);
  CHECK(value("step_seconds_count") == 7);
  CHECK(value("step_seconds_sum") == doctest::Approx(step_s).epsilon(1e-9));
  CHECK(value("tokens_total") == last["tokens"].get<double>());
  CHECK(value("samples_total") == 7 * 6);
  CHECK(value("skipped_total") == last["skipped_total"].get<double>());
  CHECK(value("loss") == doctest::Approx(last["loss"].get<double>()).epsilon(1e-12));
  CHECK(value("lr") == doctest::Approx(last["lr"].get<double>()).epsilon(1e-12));
  CHECK(value("loss_scale") == last["loss_scale"].get<double>());
  CHECK(value("mfu{convention=\"causal\"}") == doctest::Approx(last["mfu"]["causal"].get<double>()).epsilon(1e-12));
  CHECK(value("memory_bytes{owner=\"weights\"}") == last["memory_bytes"]["weights"].get<double>());
  CHECK(value("memory_other_bytes{what=\"planned\"}") == last["memory_bytes"]["planned"].get<double>());
  CHECK(value("checkpoints_total{tier=\"durable\"}") == 2);  // of steps 3 and 6
  CHECK(value("events_total{event=\"validation\"}") == 1);   // of step 4
  CHECK(value("val_loss") > 0);
  CHECK(value("host_cpu_seconds_total{mode=\"idle\"}") > 0);
  CHECK(value("resident_bytes{pid=\"" + std::to_string(::getpid()) + "\"}") > 1e6);
  CHECK(text.find("layout=\"tp 1 x pp 1 x dp 2, zero 1\"") != std::string::npos);
  const Json run = Json::parse(std::ifstream(fs::path(spec.out) / "run.json"));
  CHECK(text.find("run_id=\"" + run["run_id"].get<std::string>() + "\"") != std::string::npos);
}

TEST_CASE("numbers that are missing or no numbers, and totals of an earlier start") {
  TrainMetrics metrics("127.0.0.1", 0);
  CHECK(http_get(metrics.port(), "/health").body == R"({"status":"ok","state":"starting"})");
  metrics.add_step({{"step", 41}, {"loss", nullptr}, {"tokens", 4100}, {"step_s", 0.25}, {"skipped_total", 2}});
  metrics.add_step({{"step", 42}, {"loss", nullptr}, {"tokens", 4200}, {"step_s", 3.0}, {"skipped_total", 2}});
  metrics.add_event({{"event", "spike"}, {"step", 42}});
  metrics.add_event({{"event", "checkpoint_failed"}, {"tier", "local"}});
  const std::map<std::string, double> now = samples(metrics.text());
  CHECK(std::isnan(now.at("rankwright_train_loss")));
  CHECK(now.at("rankwright_train_tokens_total") == 4200);
  CHECK(now.at("rankwright_train_steps_total") == 2);
  CHECK(now.at("rankwright_train_skipped_total") == 2);
  CHECK(now.at("rankwright_train_spikes_total") == 1);
  CHECK(now.at("rankwright_train_checkpoints_failed_total{tier=\"local\"}") == 1);
  CHECK(now.at("rankwright_train_step_seconds_bucket{le=\"0.5\"}") == 1);
  CHECK(now.at("rankwright_train_step_seconds_bucket{le=\"5\"}") == 2);
  CHECK(now.count("rankwright_train_loss_scale") == 0);
}

TEST_CASE("a taken port and flags that are none") {
  TrainMetrics first("127.0.0.1", 0);
  try {
    TrainMetrics second("127.0.0.1", first.port());
    FAIL("the port was taken");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    CHECK(std::string(e.what()).find("--metrics-port " + std::to_string(first.port())) == 0);
  }
  TrainSpec spec;
  CHECK(metrics_port(spec) == -1);
  spec.metrics_port = "auto";
  CHECK(metrics_port(spec) == 0);
  spec.metrics_port = "9400";
  CHECK(metrics_port(spec) == 9400);
  for (const char* bad : {"0", "65536", "-1", "", "on", "94oo"}) {
    spec.metrics_port = bad;
    CHECK_THROWS_AS(metrics_port(spec), Error);
  }
}
