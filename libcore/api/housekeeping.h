// What is due from time to time: time-outs and keep-alive of replies; once a second a look at the engine, for the
// memory ring, the alerts and, when it has failed, a dump.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

#include "libcore/api/api_state.h"
#include "libcore/telemetry/alerts.h"
#include "libcore/telemetry/json_lines.h"

namespace rw {

class Housekeeping {
 public:
  // The state outlives this. Error{runtime} when events.jsonl cannot be opened in spec.out.
  explicit Housekeeping(ApiState& state);
  ~Housekeeping() { stop(); }
  void start();
  void stop();
  void turn(double now);  // one turn of the thread; tests call it with a time of their own

 private:
  void run();
  void look(const LoadedModel& loaded, double now);
  void feed(const char* name, double value, double now);
  void dump(const LoadedModel& loaded, double now);

  ApiState& state_;
  Alerts alerts_;
  JsonLines events_;
  double last_look_ = 0;
  bool dumped_ = false;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rw
