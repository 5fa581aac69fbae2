#include "libcore/serve/step_log.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/log.h"

namespace rw {
namespace {

constexpr int64_t kFormat = 1;

Json arrival_json(const Arrival& a) {
  // Of the sampling nothing is a scheduler's affair.
  return {
      {"add", a.id},      {"prompt", a.prompt}, {"max_tokens", a.max_tokens}, {"prompt_logprobs", a.prompt_logprobs},
      {"cache", a.cache}, {"salt", a.salt},     {"priority", a.priority}};
}

Json spec_json(const SchedulerSpec& s) {
  return {{"format", kFormat},
          {"n_pages", s.n_pages},
          {"block_tokens", s.block_tokens},
          {"max_seqs", s.max_seqs},
          {"max_batch_tokens", s.max_batch_tokens},
          {"itl_budget_s", s.itl_budget_s},
          {"max_preemptions", s.max_preemptions},
          {"prefix_cache", s.prefix_cache}};
}

// Throws nlohmann's exceptions where a key is missing or of another type.
SchedulerSpec spec_of(const Json& line) {
  const auto size = [&](const char* key, int64_t least, int64_t most) {
    const int64_t n = line.at(key);
    if (n < least || n > most) fail(ErrorKind::input, "{}: expected {} to {}, found {}", key, least, most, n);
    return n;
  };
  return {.n_pages = size("n_pages", 1, 1 << 27),
          .block_tokens = size("block_tokens", 1, 1024),
          .max_seqs = size("max_seqs", 1, 65536),
          .max_batch_tokens = size("max_batch_tokens", 1, 1 << 24),
          .itl_budget_s = line.at("itl_budget_s"),
          .max_preemptions = line.at("max_preemptions"),
          .prefix_cache = line.at("prefix_cache")};
}

Arrival arrival_of(const Json& line) {
  return {.id = line.at("add"),
          .prompt = line.at("prompt"),
          .max_tokens = line.at("max_tokens"),
          .sampling = {},
          .prompt_logprobs = line.at("prompt_logprobs"),
          .cache = line.at("cache"),
          .salt = line.at("salt"),
          .priority = line.at("priority")};
}

class Replay {
 public:
  // Adds to the report_.
  Replay(const SchedulerSpec& spec, ReplayReport& report)
      : scheduler_(spec), report_(report), preemptions_(report.preemptions) {}
  // One line after the first.
  void line(const Json& j, int64_t number) {
    if (j.contains("add")) {
      Arrival a = arrival_of(j);
      if (!scheduler_.fits(static_cast<int64_t>(a.prompt.size()), a.max_tokens) || a.prompt.empty())
        fail(ErrorKind::input, "its sequence can never run");
      scheduler_.add(std::move(a));
      ++report_.arrivals;
    } else if (j.contains("end")) {
      scheduler_.end(j.at("end"));
      ++report_.ends;
    } else if (j.contains("plan")) {
      check_plan(j.at("plan"), number);
    } else if (j.contains("seconds")) {
      StepOutcome outcome{.seconds = j.at("seconds"), .drawn = {}};
      for (const Json& d : j.at("drawn")) outcome.drawn.emplace_back(d.at(0), d.at(1));
      scheduler_.done(outcome);
      report_.model_s += outcome.seconds;
    } else if (j.contains("keep")) {
      scheduler_.keep(j.at("keep"));
    } else if (j.contains("release")) {
      scheduler_.release(j.at("release"));
    } else {
      fail(ErrorKind::input, "expected add, end, plan, seconds, keep or release");
    }
    report_.preemptions = preemptions_ + scheduler_.stats().preemptions;
  }

 private:
  void check_plan(const Json& expected, int64_t number) {
    StepPlan plan;
    scheduler_.next(plan);
    ++report_.steps;
    for (const SequenceRows& r : plan.rows) (r.n == 1 ? report_.decode_tokens : report_.prefill_tokens) += r.n;
    const Json found = plan_json(plan);
    if (found == expected) return;
    report_.first_difference = number;
    report_.expected = expected.dump();
    report_.found = found.dump();
  }
  Scheduler scheduler_;
  ReplayReport& report_;
  const int64_t preemptions_;  // of servers before
};

}  // namespace

StepLog::StepLog(const std::filesystem::path& file, const SchedulerSpec& spec) : file_(file), lines_(file), on_(true) {
  write(spec_json(spec));
}

void StepLog::write(const Json& line) {
  if (lines_.write(line)) return;
  log_warning("{}: the disk is full, or the file cannot be written: the step log ends here", file_.string());
  on_ = false;
}

void StepLog::arrival(const Arrival& arrival) {
  if (on_) write(arrival_json(arrival));
}
void StepLog::end(SequenceId id) {
  if (on_) write({{"end", id}});
}
void StepLog::plan(const StepPlan& plan) {
  if (on_) write({{"plan", plan_json(plan)}});
}
void StepLog::outcome(const StepOutcome& outcome) {
  if (!on_) return;
  Json drawn = Json::array();
  for (const auto& [id, token] : outcome.drawn) drawn.push_back({id, token});
  write({{"seconds", outcome.seconds}, {"drawn", drawn}});
}
void StepLog::keep(SequenceId id) {
  if (on_) write({{"keep", id}});
}
void StepLog::release(int64_t handle) {
  if (on_) write({{"release", handle}});
}

ReplayReport replay(const std::filesystem::path& log) {
  std::ifstream in(log);
  if (!in) fail(ErrorKind::input, "{}: expected a log written by dserve --log-steps, found no such file", log.string());
  std::unique_ptr<Replay> run;
  ReplayReport report;
  std::string text;
  for (int64_t number = 1; report.first_difference < 0 && std::getline(in, text); ++number) {
    const std::string where = log.string() + ":" + std::to_string(number);
    // A server that was killed, or a disk that was full, leaves half a line at the end.
    report.torn = in.eof() && run != nullptr;
    if (report.torn) break;
    const Json line = parse_json(text, where);
    try {
      if (line.contains("format")) {  // another server's life begins
        if (line.at("format") != kFormat) fail(ErrorKind::input, "expected a log of format {}", kFormat);
        run = std::make_unique<Replay>(spec_of(line), report);
      } else if (run == nullptr) {
        fail(ErrorKind::input, "expected the first line of a step log");
      } else {
        run->line(line, number);
      }
    } catch (const nlohmann::json::exception& e) {
      fail(ErrorKind::input, "{}: expected a line of a step log ({})", where, e.what());
    } catch (const std::logic_error& e) {  // what no engine would have told its scheduler
      fail(ErrorKind::input, "{}: this cannot follow on the lines before it ({})", where, e.what());
    } catch (const Error& e) {
      fail(ErrorKind::input, "{}: {}", where, e.what());
    }
  }
  if (run == nullptr)
    fail(ErrorKind::input, "{}: expected a log written by dserve --log-steps, found nothing in it", log.string());
  return report;
}

}  // namespace rw
