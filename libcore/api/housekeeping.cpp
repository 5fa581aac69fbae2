#include "libcore/api/housekeeping.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/api/memory_json.h"
#include "libcore/api/state_dump.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/log.h"

namespace rw {
namespace {

constexpr std::chrono::milliseconds kTurn{100};
constexpr double kLookS = 1;

JsonLines events_of(const ServeSpec& spec) {
  return spec.out.empty() ? JsonLines() : JsonLines(std::filesystem::path(spec.out) / "events.jsonl");
}

}  // namespace

Housekeeping::Housekeeping(ApiState& state)
    : state_(state),
      alerts_({{.name = "kv_usage", .above = state.spec.alert_kv_usage, .for_s = state.spec.alert_for_s},
               {.name = "queue_s", .above = state.spec.alert_queue_s, .for_s = state.spec.alert_for_s},
               {.name = "itl_ms", .above = state.spec.alert_itl_ms, .for_s = state.spec.alert_for_s}}),
      events_(events_of(state.spec)) {}

void Housekeeping::start() {
  thread_ = std::thread([this] { run(); });
}

void Housekeeping::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Housekeeping::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kTurn, [&] { return stopping_; })) {
    lock.unlock();
    turn(now_s());
    lock.lock();
  }
}

void Housekeeping::turn(double now) {
  state_.live.tick(now);
  const LoadedModel* loaded = state_.loaded();
  if (loaded == nullptr || now - last_look_ < kLookS) return;
  last_look_ = now;
  look(*loaded, now);
}

void Housekeeping::look(const LoadedModel& loaded, double now) {
  const EngineStats stats = loaded.engine->stats();
  state_.memory_ring.add(now, memory_snapshot(loaded.engine->memory()));
  feed("kv_usage", kv_usage(stats), now);
  feed("queue_s", stats.waiting > 0 ? state_.live.oldest_wait_s(now) : 0, now);
  // Of the last second. Silence says nothing while something runs, and that all is well otherwise.
  const double gap_s = state_.metrics.take_worst_gap_s();
  feed("itl_ms", gap_s >= 0 ? 1e3 * gap_s : stats.running > 0 ? std::nan("") : 0, now);
  if (loaded.engine->state() == EngineState::failed && !dumped_) dump(loaded, now);
}

void Housekeeping::feed(const char* name, double value, double now) {
  const auto event = alerts_.feed(now, name, value);
  if (!event) return;
  Json line{{"time", utc_timestamp()}};
  line.update(alert_json(*event));
  events_.write(line);
  if (event->raised)
    log_warning("alert: {} is {:.4g}, above {:.4g} for {:.0f} s", name, value, event->rule.above, event->rule.for_s);
  else log_info("alert over: {} was {:.4g} at worst", name, event->worst);
}

void Housekeeping::dump(const LoadedModel& loaded, double now) {
  dumped_ = true;
  events_.write({{"time", utc_timestamp()}, {"event", "failure"}, {"message", loaded.engine->failure()}});
  if (state_.spec.out.empty()) {
    log_error("the failed engine's state: {}", state_dump(*loaded.engine, nullptr, now));
    return;
  }
  std::string time = utc_timestamp();
  std::erase(time, ':');
  const auto file = std::filesystem::path(state_.spec.out) / ("dump-" + time + ".json");
  try {
    write_file_atomic(file, state_dump(*loaded.engine, &state_.memory_ring, now) + "\n");
    log_error("the failed engine's state is in {}", file.string());
  } catch (const Error& e) {
    log_error("{}; the failed engine's state: {}", e.what(), state_dump(*loaded.engine, nullptr, now));
  }
}

}  // namespace rw
