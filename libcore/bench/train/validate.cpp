#include "libcore/bench/train/validate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/bench/record/baseline.h"
#include "libcore/bench/record/compare.h"
#include "libcore/bench/record/statistics.h"
#include "libcore/bench/train/bench_folder.h"
#include "libcore/bench/train/child_process.h"
#include "libcore/bench/train/serving_prediction.h"
#include "libcore/comm/comm.h"
#include "libcore/plan/measure/discover.h"
#include "libcore/spec/model_spec.h"

namespace rw {
namespace fs = std::filesystem;
namespace {

const std::vector<std::string> kStages = {"train", "serve", "serve-tp", "scale-up"};

// A request's time that is the server's and the client's own work, which no prediction holds: of a small model's first
// token it can be most.
constexpr double kOwnWorkMs = 2;
constexpr const char* kNotQuiet = "others were on the machine when it was measured for the prediction: it does better";

void raise(StageResult& stage, StageVerdict verdict, const std::string& note) {
  stage.verdict = std::max(stage.verdict, verdict);
  stage.notes.push_back(note);
}

std::vector<std::string> launcher_words(const std::string& launcher, int64_t n) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : launcher + " ") {
    if (c != ' ') {
      word += c;
      continue;
    }
    if (word.empty()) continue;
    if (const size_t at = word.find("{n}"); at != std::string::npos) word.replace(at, 3, std::to_string(n));
    words.push_back(word);
    word.clear();
  }
  return words;
}

std::string tail(const fs::path& file) {
  constexpr size_t kMost = 600;
  std::string text = fs::exists(file) ? read_file(file) : "";
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.size() > kMost ? "..." + text.substr(text.size() - kMost) : text;
}

class Validation {
 public:
  Validation(const ValidateJob& job, const fs::path& dir) : job_(job), spec_(job.spec), dir_(dir) {}

  StageResult run(const std::string& name) {
    StageResult stage;
    stage.name = name;
    const double begin = now_s();
    try {
      if (name == "train") stage.records = train(name, spec_.ranks);
      if (name == "scale-up") stage.records = train(name, spec_.scale_ranks > 0 ? spec_.scale_ranks : 2 * spec_.ranks);
      if (name == "serve" || name == "serve-tp") {
        const int64_t ranks = name == "serve" ? 1 : spec_.ranks;
        stage.records = serve(name, ranks);
        predict(stage, ranks);
      }
      for (BenchRecord& r : stage.records) r.bench = "validate", r.name = name + ": " + spec_.model;
      judge_stage(stage, spec_);
    } catch (const Error& e) {
      raise(stage, StageVerdict::fail, e.what());
    }
    stage.seconds = now_s() - begin;
    return stage;
  }

 private:
  std::string program(const char* name) const { return (job_.programs / name).string(); }
  static void append(std::vector<std::string>& to, const std::vector<std::string>& words) {
    to.insert(to.end(), words.begin(), words.end());
  }

  // What a program printed, as records. Error{runtime} when it failed or took too long.
  std::vector<BenchRecord> records_of(const std::string& what, const std::vector<std::string>& argv) {
    const fs::path out = dir_ / (what + ".json"), err = dir_ / (what + ".err");
    ChildProcess child(argv, out, err);
    if (!child.wait(spec_.timeout))
      fail(ErrorKind::runtime, "{}: was not done after --timeout {} s: {}", what, spec_.timeout, tail(err));
    if (child.code() != 0)
      fail(ErrorKind::runtime, "{}: exit {}: {}{}", what, child.code(), tail(err), launch_advice(read_file(err)));
    return read_records(out.string());
  }

  std::vector<BenchRecord> train(const std::string& stage, int64_t ranks) {
    job_.progress(stage, fmt::format("training on {} ranks", ranks));
    std::vector<std::string> argv = launcher_words(spec_.launcher, ranks);
    append(argv, {program("dbench"),
                  "train",
                  "--json",
                  "--model",
                  spec_.model,
                  "--precision",
                  spec_.precision,
                  "--threads",
                  std::to_string(spec_.threads),
                  "--seq-len",
                  std::to_string(spec_.seq_len),
                  "--micro-batch",
                  std::to_string(spec_.micro_batch),
                  "--warmup",
                  std::to_string(spec_.warmup),
                  "--measure",
                  std::to_string(spec_.measure),
                  "--repeats",
                  std::to_string(spec_.repeats),
                  "--keep",
                  (dir_ / stage).string(),
                  "--comm-timeout",
                  "60"});
    if (!spec_.cluster.empty()) append(argv, {"--cluster", spec_.cluster});
    // The last step's weights are what is served.
    if (stage == "train") append(argv, {"--checkpoint-every", std::to_string(spec_.warmup + spec_.measure)});
    return records_of(stage, argv);
  }

  std::vector<BenchRecord> serve(const std::string& stage, int64_t ranks) {
    const fs::path weights = dir_ / "train" / "00-0";
    if (!fs::exists(weights)) fail(ErrorKind::runtime, "the stage train left no weights in {}", weights.string());
    job_.progress(stage, "starting the server");
    std::vector<std::string> argv;
    if (ranks > 1) argv = launcher_words(spec_.launcher, ranks);
    append(argv, {program("dserve"), "--model", weights.string(), "--port", "0", "--precision", spec_.precision,
                  "--threads", std::to_string(spec_.threads), "--memory-utilization", "0.1"});
    if (ranks > 1) append(argv, {"--tp", std::to_string(ranks)});
    const fs::path err = dir_ / (stage + "-server.err");
    ChildProcess server(argv, dir_ / (stage + "-server.out"), err);
    const std::string url = url_of(server, err, stage);
    job_.progress(stage, "sending requests to " + url);
    return records_of(
        stage, {program("dbench"), "serve", "--json", "--url", url, "--num-prompts", std::to_string(spec_.requests),
                "--max-concurrency", std::to_string(spec_.concurrency), "--input-len", std::to_string(spec_.input_len),
                "--output-len", std::to_string(spec_.output_len), "--vocab-size", "100", "--repeats",
                std::to_string(spec_.repeats)});
  }

  // The server is gone: the host can be measured.
  void predict(StageResult& stage, int64_t ranks) {
    const int n = static_cast<int>(ranks), threads = static_cast<int>(spec_.threads);
    try {
      ClusterSpec cluster;
      if (spec_.cluster.empty()) {
        job_.progress(stage.name, "measuring this host, for the prediction");
        const Discovered host = cpu_cluster({.host = this_host(),
                                             .cores = {.ranks = n, .threads = threads},
                                             .speed = measure_cpu_speed({.ranks = n, .threads = threads})});
        if (!host.is_quiet) stage.notes.push_back(kNotQuiet);
        cluster = host.cluster;
      } else {
        cluster = load_cluster_spec(spec_.cluster);
      }
      const ServingPrediction prediction = predict_serving({.model = spec_.model,
                                                            .precision = spec_.precision,
                                                            .tp = ranks,
                                                            .threads = spec_.threads,
                                                            .concurrency = spec_.concurrency,
                                                            .input_len = spec_.input_len,
                                                            .output_len = spec_.output_len},
                                                           cluster);
      for (BenchRecord& record : stage.records) set_predictions(record, prediction);
    } catch (const Error& e) {
      stage.notes.push_back(std::string("no prediction: ") + e.what());
    }
  }

  std::string url_of(ChildProcess& server, const fs::path& err, const std::string& stage) {
    const double until = now_s() + spec_.timeout;
    while (now_s() < until && !server.wait(0.1)) {
      const std::string text = read_file(err);
      const size_t ready = text.find("ready: ");
      const size_t on = ready == std::string::npos ? ready : text.find(" on http://", ready);
      // The line may be half written: the address ends where the next word begins.
      const size_t end = on == std::string::npos ? on : text.find_first_of(", \t\n", on + 4);
      if (end != std::string::npos) return text.substr(on + 4, end - on - 4);
    }
    fail(ErrorKind::runtime, "{}: the server was not ready: {}{}", stage, tail(err), launch_advice(read_file(err)));
  }

  const ValidateJob& job_;
  const ValidateSpec& spec_;
  fs::path dir_;
};

void against_baseline(StageResult& stage, const ValidateSpec& spec) {
  if (!fs::exists(spec.baseline)) {
    if (!spec.save) raise(stage, StageVerdict::warn, fmt::format("no baseline: {} is not there", spec.baseline));
    return;
  }
  std::vector<BenchRecord> base;
  try {
    base = matching_baselines(read_baselines(spec.baseline), stage.records, false);
  } catch (const Error& e) {
    if (!spec.save) raise(stage, StageVerdict::warn, fmt::format("no baseline: {}", e.what()));
    return;
  }
  CompareSpec question;
  question.threshold = spec.threshold;
  const Comparison found = compare_records(base, stage.records, question);
  for (const CaseChange& c : found.cases)
    for (const MetricChange& m : c.metrics)
      if (m.change.verdict == ChangeVerdict::worse)
        raise(stage, StageVerdict::fail,
              fmt::format("{}: {:.4g} {}, the baseline is {:.4g} ({:+.1f} %)", m.name, m.change.now, m.unit,
                          m.change.base, 100 * (m.change.ratio - 1)));
      else if (m.change.verdict == ChangeVerdict::too_noisy)
        raise(stage, StageVerdict::warn, fmt::format("{}: too noisy to be compared with the baseline", m.name));
}

}  // namespace

FieldList fields(ValidateSpec& s) {
  return {
      {.name = "model",
       .value = &s.model,
       .help = "a small model: a name, a config.json or a directory",
       .group = "Job"},
      {.name = "precision",
       .value = &s.precision,
       .help = "of activations and products",
       .choices = {"f32", "bf16"},
       .group = "Job"},
      {.name = "ranks",
       .value = &s.ranks,
       .help = "that train, and that serve together",
       .min = 1,
       .max = 1 << 20,
       .group = "Job"},
      {.name = "scale-ranks",
       .value = &s.scale_ranks,
       .help = "of the scale-up; 0: twice --ranks",
       .min = 0,
       .max = 1 << 20,
       .group = "Job"},
      {.name = "threads", .value = &s.threads, .help = "of a rank", .min = 1, .max = 4096, .group = "Job"},
      {.name = "stage",
       .value = &s.stage,
       .help = "train, serve, serve-tp, scale-up: those to run; may repeat",
       .group = "Job"},
      {.name = "launcher",
       .value = &s.launcher,
       .help = "starts {n} ranks of what follows it, more than there are cores too",
       .group = "Job"},
      {.name = "timeout",
       .value = &s.timeout,
       .help = "seconds that a program may take",
       .min = 1,
       .max = 1e6,
       .group = "Job"},
      {.name = "seq-len",
       .value = &s.seq_len,
       .help = "tokens of a sample",
       .min = 1,
       .max = 1 << 20,
       .group = "Training"},
      {.name = "micro-batch",
       .value = &s.micro_batch,
       .help = "samples of a rank",
       .min = 1,
       .max = 1 << 20,
       .group = "Training"},
      {.name = "warmup",
       .value = &s.warmup,
       .help = "steps that are not measured",
       .min = 0,
       .max = 1e6,
       .group = "Training"},
      {.name = "measure", .value = &s.measure, .help = "steps that are", .min = 1, .max = 1e6, .group = "Training"},
      {.name = "repeats",
       .value = &s.repeats,
       .help = "of each measurement",
       .min = 1,
       .max = 1000,
       .group = "Training"},
      {.name = "requests", .value = &s.requests, .help = "to each server", .min = 1, .max = 1e6, .group = "Serving"},
      {.name = "concurrency",
       .value = &s.concurrency,
       .help = "of them at a time",
       .min = 1,
       .max = 1e5,
       .group = "Serving"},
      {.name = "input-len",
       .value = &s.input_len,
       .help = "tokens of a prompt",
       .min = 1,
       .max = 1e6,
       .group = "Serving"},
      {.name = "output-len",
       .value = &s.output_len,
       .help = "tokens of a reply",
       .min = 1,
       .max = 1e6,
       .group = "Serving"},
      {.name = "cluster",
       .value = &s.cluster,
       .help = "what is predicted with; without it this host is measured",
       .group = "Verdict"},
      {.name = "most-over-prediction",
       .value = &s.most_over_prediction,
       .help = "a step this many times its prediction warns",
       .min = 1,
       .max = 1e6,
       .group = "Verdict"},
      {.name = "baseline",
       .value = &s.baseline,
       .help = "folder of saved records (dbench baseline) to compare with",
       .group = "Verdict"},
      {.name = "threshold",
       .value = &s.threshold,
       .help = "relative: a smaller change is no regression",
       .group = "Verdict"},
      {.name = "save",
       .value = &s.save,
       .help = "keep these records as the new baseline, when nothing failed",
       .group = "Verdict"},
  };
}

const char* stage_verdict_name(StageVerdict verdict) {
  constexpr const char* kNames[] = {"pass", "warn", "fail"};
  return kNames[static_cast<size_t>(verdict)];
}

namespace {

// Before minutes of measuring.
void check_baseline_folder(const ValidateSpec& spec) {
  std::error_code error;
  if (spec.save) fs::create_directories(spec.baseline, error);
  if (error || (fs::exists(spec.baseline) && !fs::is_directory(spec.baseline)))
    fail(ErrorKind::usage, "--baseline {}: expected a folder of saved records, or a new one with --save{}",
         spec.baseline, error ? ": " + error.message() : ", found a file");
  if (spec.save && ::access(spec.baseline.c_str(), W_OK) != 0)
    fail(ErrorKind::usage, "--baseline {}: expected a folder that can be written to", spec.baseline);
}

}  // namespace

std::string launch_advice(const std::string& said) {
  const auto says = [&](const char* words) { return said.find(words) != std::string::npos; };
  if (says("not enough slots"))
    return "; the launcher counts fewer cores than ranks: give --launcher \"mpirun --oversubscribe -n {n}\", a "
           "--hostfile in it, or fewer --ranks and --scale-ranks";
  if (says("run as root") || says("allow-run-as-root"))
    return "; mpirun refuses to run as root: start dbench as another user, or in a container of your own set "
           "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
  return "";
}

void judge_stage(StageResult& stage, const ValidateSpec& spec) {
  for (const BenchRecord& record : stage.records) {
    if (!record.quiet) raise(stage, StageVerdict::warn, "others were on the machine: its times say little");
    if (const Json details = Json::parse(record.details, nullptr, false); details.is_object())
      if (const Json p = details.value("prediction", Json()); p.is_object() && !p.value("quiet", true))
        stage.notes.push_back(kNotQuiet);
    for (const BenchMetric& m : record.metrics) {
      if (m.kind != MetricKind::time || !m.predicted || *m.predicted <= 0) continue;
      const double measured = quantile_of(m.samples, 0.5);
      const double over = m.better == Better::higher ? *m.predicted / measured : measured / *m.predicted;
      const std::string text = fmt::format("{}: {:.4g} {}, predicted {:.4g}", m.name, measured, m.unit, *m.predicted);
      const bool is_own_work = m.unit == "ms" && measured - *m.predicted < kOwnWorkMs;
      if (!(over <= spec.most_over_prediction) && !is_own_work) raise(stage, StageVerdict::warn, text);
      else stage.notes.push_back(text);
    }
  }
  if (!spec.baseline.empty()) against_baseline(stage, spec);
}

std::vector<StageResult> run_validate(const ValidateJob& job) {
  const ValidateSpec& spec = job.spec;
  for (const std::string& stage : spec.stage)
    if (std::find(kStages.begin(), kStages.end(), stage) == kStages.end())
      fail(ErrorKind::usage, "--stage: expected train, serve, serve-tp or scale-up, found \"{}\"", stage);
  const auto wants = [&](const std::string& s) {
    return std::find(spec.stage.begin(), spec.stage.end(), s) != spec.stage.end();
  };
  if ((wants("serve") || wants("serve-tp")) && !wants("train"))
    fail(ErrorKind::usage, "--stage serve serves what --stage train has trained: give both");
  if (spec.save && spec.baseline.empty())
    fail(ErrorKind::usage, "--save needs --baseline, the folder to keep records in");
  if (spec.launcher.find("{n}") == std::string::npos)
    fail(ErrorKind::usage, "--launcher {}: expected {{n}} where the number of ranks goes", spec.launcher);
  parse_threshold(spec.threshold);
  load_model_spec(spec.model);
  if (!spec.baseline.empty()) check_baseline_folder(spec);
  const std::unique_ptr<Comm> self = make_self_comm();
  const BenchFolder folder("", *self);
  Validation validation(job, folder.path());
  std::vector<StageResult> stages;
  for (const std::string& name : kStages)
    if (wants(name)) stages.push_back(validation.run(name));
  return stages;
}

void save_validation(const ValidateSpec& spec, const std::vector<StageResult>& stages) {
  if (!spec.save || worst_verdict(stages) == StageVerdict::fail) return;
  std::vector<BenchRecord> records;
  for (const StageResult& s : stages) records.insert(records.end(), s.records.begin(), s.records.end());
  SaveBaseline save;
  save.dir = spec.baseline;
  save.append = true;
  save_baseline(records, save);
}

StageVerdict worst_verdict(const std::vector<StageResult>& stages) {
  StageVerdict worst = StageVerdict::pass;
  for (const StageResult& s : stages) worst = std::max(worst, s.verdict);
  return worst;
}

std::string validate_table(const std::vector<StageResult>& stages) {
  std::string text;
  for (const StageResult& s : stages) {
    text += fmt::format("{:<10} {:<5} {:>7.1f} s\n", s.name, stage_verdict_name(s.verdict), s.seconds);
    for (const std::string& note : s.notes) text += "             " + note + "\n";
  }
  return text;
}

}  // namespace rw
