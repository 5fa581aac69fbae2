// `dtrain --metrics-port`: a training run as Prometheus sees it. What is served is what metrics.jsonl and events.jsonl
// hold, line by line, added up where Prometheus wants totals; the host's state is read when somebody asks. A scrape
// runs beside training, on a thread of its own.
//
//   rankwright_train_loss, _lr, _grad_norm, _step, _tokens_per_s, _loss_scale, _val_loss        gauges, the last line's
//   _steps_total, _tokens_total, _samples_total, _skipped_total, _spikes_total, _model_flops_total
//   _step_seconds (histogram), _seconds_total{category}, _mfu{convention}
//   _communication_seconds_total, _communication_exposed_seconds_total
//   _communication_calls_total{group,op}, _communication_bytes_total{group,op}
//   _memory_bytes{owner} (the arena's), _memory_other_bytes{what} (planned, outside_arena, ...)
//   _checkpoints_total{tier}, _checkpoint_bytes_total{tier}, _checkpoints_failed_total{tier}, _events_total{event}
//   _info{run_id,model,layout,precision,version}, _resident_bytes, _host_*
#pragma once
#include <memory>
#include <string>

#include "libcore/base/json.h"

namespace rw {

struct ResourceOptions;

class TrainMetrics {
 public:
  // Listens. `port` 0: a free one. Error{usage} when the address is taken or is none of this host.
  TrainMetrics(const std::string& host, int port);
  ~TrainMetrics();  // cuts off scrapes under way after a second
  int port() const;
  // The run's identity, as run.json has it.
  void begin(const Json& identity);
  // A line of metrics.jsonl, of events.jsonl. The run's own totals (tokens, samples, skipped) go on over a resume, the
  // others count from this start.
  void add_step(const Json& line);
  void add_event(const Json& line);
  // From now on a scrape also reads what the host does: /proc, of this process and options.pids.
  void show_host(const ResourceOptions& options);
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
