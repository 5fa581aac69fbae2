#include "libcore/bench/load/load_runner.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <memory>
#include <queue>
#include <random>
#include <utility>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/bench/load/load_queue.h"
#include "libcore/bench/load/reply_reader.h"
#include "libcore/net/http_fetch.h"
#include "libcore/net/http_streams.h"

namespace rw {
namespace {

constexpr double kAheadSeconds = 0.25;  // connections for what is due within it are opened now
constexpr int64_t kAheadConnections = 4096;
constexpr double kWarmUpSeconds = 2;        // for the first of them, before the clock starts
constexpr double kLookSeconds = 0.05;       // between looks at stop and progress
constexpr double kLingerSeconds = 0.05;     // from [DONE] to the reply's orderly end
constexpr double kDefaultRetrySeconds = 1;  // RFC 9110 names none

void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

std::string joined_path(std::string base, const std::string& path) {
  while (base.ends_with('/')) base.pop_back();
  if (base.ends_with("/v1") && path.starts_with("/v1/")) base.resize(base.size() - 3);
  return base + path;
}

double retry_seconds(const HttpResponseParser& reply) {
  const auto number = [&](std::string_view name, double unit_s) {
    const std::string* text = reply.header(name);
    double value = -1;
    if (text != nullptr) std::from_chars(text->data(), text->data() + text->size(), value);
    return value >= 0 ? value * unit_s : -1;
  };
  const double ms = number("retry-after-ms", 1e-3);
  if (ms >= 0) return ms;
  // A date instead of seconds begins with a letter and gives -1.
  const double s = number("retry-after", 1);
  return s >= 0 ? s : kDefaultRetrySeconds;
}

class Driver {
 public:
  Driver(const std::vector<LoadRequest>& schedule, const LoadOptions& options)
      : schedule_(schedule),
        options_(options),
        url_(parse_http_url(options.target.url)),
        host_(url_.authority()),
        run_name_(fmt::format("dbench-{:08x}", std::random_device()())),
        queue_(schedule, options.closed_loop ? LoadQueue::Order::followers_first : LoadQueue::Order::by_time),
        requests_(schedule.size()),
        outcomes_(schedule.size()),
        streams_({.url = url_, .connect_timeout_s = options.connect_timeout_s}) {
    headers_ = {{"Content-Type", "application/json"}};
    if (!options.target.api_key.empty()) headers_.emplace_back("Authorization", "Bearer " + options.target.api_key);
    headers_.emplace_back("x-request-id", "");
  }

  LoadRun run() {
    warm_up();
    LoadRun run;
    const double cpu_s = process_cpu_s();
    start_s_ = now_s();
    const auto tell = [this](const HttpStreamReport& report) { take(report); };
    while (finished_ < schedule_.size() && !stopped()) {
      start_due();
      open_ahead();
      streams_.wait(start_s_ + next_s(), tell);
      expire();
    }
    run.wall_s = elapsed();
    give_up_all();
    run.client_cpu_s = process_cpu_s() - cpu_s;
    run.connections = streams_.opened();
    for (size_t i = 0; i < outcomes_.size(); ++i)
      if (requests_[i].state == State::finished) run.outcomes.push_back(std::move(outcomes_[i]));
    std::sort(run.outcomes.begin(), run.outcomes.end(),
              [](const LoadOutcome& a, const LoadOutcome& b) { return a.index < b.index; });
    return run;
  }

 private:
  enum class State : uint8_t { waiting, running, retrying, finished };
  struct Request {
    State state = State::waiting;
    bool sent = false;
    double retry_after_s = kDefaultRetrySeconds;
    std::unique_ptr<ReplyReader> reader;
  };
  using Timed = std::pair<double, size_t>;

  double elapsed() const { return now_s() - start_s_; }
  bool has_place() const { return options_.max_concurrency <= 0 || running_ < options_.max_concurrency; }
  int64_t wanted_ahead() {
    int64_t n = queue_.due_by(elapsed() + kAheadSeconds);
    if (options_.max_concurrency > 0) n = std::min(n, options_.max_concurrency - running_);
    return std::min(n, kAheadConnections);
  }
  void open_ahead() { streams_.reserve(wanted_ahead()); }

  void warm_up() {
    start_s_ = now_s();
    const int64_t wanted = std::max<int64_t>(1, wanted_ahead());
    streams_.reserve(wanted);
    for (const double until_s = now_s() + kWarmUpSeconds; streams_.ready() < wanted && now_s() < until_s;)
      streams_.wait(now_s() + 0.01, [](const HttpStreamReport&) {});
  }

  bool stopped() {
    const double now = elapsed();
    if (now < look_s_) return stop_;
    look_s_ = now + kLookSeconds;
    if (options_.progress) options_.progress(static_cast<int64_t>(finished_), running_);
    if (options_.stop) stop_ = options_.stop();
    return stop_;
  }

  void start_due() {
    while (!queue_.empty() && has_place()) {
      const double now = elapsed();
      const LoadQueue::Due due = queue_.front(now);
      if (due.due_s > now) return;
      queue_.pop(due.position);
      LoadOutcome& o = outcomes_[due.position];
      o.index = schedule_[due.position].index;
      o.due_s = options_.closed_loop ? now : due.due_s;
      o.sent_s = now;
      ++running_;
      deadlines_.emplace_back(now + options_.request_timeout_s, due.position);
      send(due.position);
    }
  }

  // The next moment at which there is something to do without the server's doing.
  double next_s() const {
    double next = options_.stop || options_.progress ? look_s_ : elapsed() + 1;
    if (!queue_.empty() && has_place()) next = std::min(next, queue_.front(elapsed()).due_s);
    if (!retries_.empty()) next = std::min(next, retries_.top().first);
    if (!deadlines_.empty()) next = std::min(next, deadlines_.front().first);
    if (!lingering_.empty()) next = std::min(next, lingering_.front().first);
    return next;
  }

  void send(size_t i) {
    const LoadRequest& request = schedule_[i];
    Request& r = requests_[i];
    LoadOutcome& o = outcomes_[i];
    r.state = State::running;
    r.retry_after_s = kDefaultRetrySeconds;
    r.reader = std::make_unique<ReplyReader>(request, options_.ignore_text ? ReplyText::drop : ReplyText::keep, o);
    o.request_id = fmt::format("{}-{}", run_name_, request.index);
    if (o.retries > 0) o.request_id += fmt::format(".{}", o.retries);
    headers_.back().second = o.request_id;
    streams_.send(static_cast<int64_t>(i), http_request_text({.method = "POST",
                                                              .target = joined_path(url_.path, request.path),
                                                              .host = host_,
                                                              .headers = headers_,
                                                              .body = request.body}));
  }

  void take(const HttpStreamReport& report) {
    using Kind = HttpStreamReport::Kind;
    const auto i = static_cast<size_t>(report.stream);
    Request& r = requests_[i];
    if (r.state != State::running) return;
    const double at_s = report.at_s - start_s_;
    switch (report.kind) {
      case Kind::sent:
        if (!r.sent) outcomes_[i].sent_s = at_s;
        r.sent = true;
        if (schedule_[i].disconnect_after_tokens == 0) r.reader->broken(LoadEnd::disconnected, "", at_s);
        break;
      case Kind::head: take_head(i, *report.reply, at_s); break;
      case Kind::body: {
        const bool was_done = r.reader->done();
        r.reader->body(report.bytes, at_s);
        if (r.reader->done() && !was_done) lingering_.emplace_back(at_s + kLingerSeconds, i);
        break;
      }
      case Kind::done: r.reader->end(at_s); break;
      case Kind::no_connection: r.reader->broken(LoadEnd::connect_error, report.bytes, at_s); break;
      case Kind::closed: r.reader->broken(LoadEnd::closed_mid_stream, report.bytes, at_s); break;
      case Kind::bad_reply: r.reader->broken(LoadEnd::malformed_stream, report.bytes, at_s); break;
    }
    if (!r.reader->over()) return;
    if (report.kind == Kind::sent || report.kind == Kind::head || report.kind == Kind::body)
      streams_.hang_up(report.stream);
    settle(i, at_s);
  }

  void take_head(size_t i, const HttpResponseParser& reply, double at_s) {
    const std::string* type = reply.header("content-type");
    // None was asked for.
    if (const std::string* coding = reply.header("content-encoding"); coding != nullptr && *coding != "identity")
      return requests_[i].reader->broken(
          LoadEnd::malformed_stream, fmt::format("expected a reply without content-encoding, found {}", *coding), at_s);
    requests_[i].reader->head(reply.status(), type != nullptr ? *type : "", at_s);
    requests_[i].retry_after_s = retry_seconds(reply);
    if (const std::string* id = reply.header("x-request-id"); id != nullptr && !id->empty())
      outcomes_[i].request_id = *id;
  }

  // The reader is over: a refusal may be tried again, all else is the request's end.
  void settle(size_t i, double at_s) {
    Request& r = requests_[i];
    LoadOutcome& o = outcomes_[i];
    r.reader.reset();
    const bool refused = o.end == LoadEnd::refused_429 || o.end == LoadEnd::refused_503;
    const double again_s = at_s + r.retry_after_s;
    if (refused && o.retries < options_.max_retries && !stop_ && again_s < o.sent_s + options_.request_timeout_s) {
      LoadOutcome fresh;
      fresh.index = o.index;
      fresh.due_s = o.due_s;
      fresh.sent_s = o.sent_s;
      fresh.retries = o.retries + 1;
      o = std::move(fresh);
      r.state = State::retrying;
      retries_.emplace(again_s, i);
      return;
    }
    r.state = State::finished;
    --running_;
    ++finished_;
    queue_.ended(i, o.end_s);
  }

  void give_up(size_t i, LoadEnd how, const std::string& why) {
    Request& r = requests_[i];
    const double at_s = elapsed();
    streams_.hang_up(static_cast<int64_t>(i));
    if (r.state == State::retrying)
      r.reader = std::make_unique<ReplyReader>(schedule_[i], ReplyText::drop, outcomes_[i]);
    r.reader->broken(how, why, at_s);
    settle(i, at_s);
  }

  bool under_way(size_t i) const {
    return requests_[i].state == State::running || requests_[i].state == State::retrying;
  }

  void expire() {
    const double now = elapsed();
    for (; !retries_.empty() && retries_.top().first <= now; retries_.pop())
      if (requests_[retries_.top().second].state == State::retrying) send(retries_.top().second);
    for (; !lingering_.empty() && lingering_.front().first <= now; lingering_.pop_front()) {
      const size_t i = lingering_.front().second;
      if (requests_[i].state == State::running && requests_[i].reader->done()) give_up(i, LoadEnd::ok, "");
    }
    for (; !deadlines_.empty(); deadlines_.pop_front()) {
      const auto& [deadline, i] = deadlines_.front();
      if (under_way(i) && deadline > now) return;
      if (under_way(i))
        give_up(i, LoadEnd::timed_out, fmt::format("no whole reply within {} s", options_.request_timeout_s));
    }
  }

  void give_up_all() {
    for (size_t i = 0; i < requests_.size(); ++i)
      if (under_way(i)) give_up(i, LoadEnd::disconnected, "given up: the run was stopped");
  }

  const std::vector<LoadRequest>& schedule_;
  const LoadOptions& options_;
  const HttpUrl url_;
  const std::string host_, run_name_;
  HttpHeaders headers_;  // the last is the request's id
  LoadQueue queue_;
  std::vector<Request> requests_;  // by position
  std::vector<LoadOutcome> outcomes_;
  HttpStreams streams_;
  std::priority_queue<Timed, std::vector<Timed>, std::greater<>> retries_;
  std::deque<Timed> deadlines_, lingering_;  // by time
  size_t finished_ = 0;
  int64_t running_ = 0;
  double start_s_ = 0, look_s_ = 0;
  bool stop_ = false;
};

}  // namespace

LoadRun run_load(const std::vector<LoadRequest>& schedule, const LoadOptions& options) {
  if (options.closed_loop && options.max_concurrency < 1)
    fail(ErrorKind::usage, "a closed loop: expected a concurrency of 1 or more, found {}", options.max_concurrency);
  raise_file_limit();
  return Driver(schedule, options).run();
}

}  // namespace rw
