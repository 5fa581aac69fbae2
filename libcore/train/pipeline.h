// Runs a stage's list of actions: receives what an action needs, computes, sends what it makes. Receives are posted as
// soon as their memory is free, so that messages travel while other actions compute; no buffer is ever waited for that
// a later action would free, so a schedule that is free of deadlock as a list is so here. On a device they are posted
// when receives_before() says, in an order that is the same in every run.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "libcore/comm/mesh.h"
#include "libcore/comm/watch.h"
#include "libcore/model/stage.h"
#include "libcore/schedule/receive_order.h"

namespace rw {

class Pipeline {
 public:
  Pipeline(const Layout& layout, Mesh& mesh, Stage& stage, CommRecord& record);

  // A step's samples of this pipeline, (micro_batches * micro_batch, seq_len), and where its work goes.
  struct Work {
    const int32_t *ids, *targets;  // where ops read them
    const AttnBatch& batch;        // of one micro-batch
    float d_scale;
    Stage::Sinks to;
    std::function<void()> after_action = nullptr;  // for times that are the work's where a device runs behind the host
  };
  // Forward and backward of all micro-batches; the losses are in the stage.
  void run(const Work& work);
  // Forward of one batch alone; the sum of the loss on the last stage, 0 on the others.
  double evaluate(const Stage::Batch& batch, WeightSource& weights);
  double waited_s() const { return waited_s_; }  // in the last run, for neighbours: the bubble and late messages
  // What the last run's actions took, in now_s(), waiting for neighbours left out. Without after_action a device may
  // not have begun them.
  const std::vector<TimedAction>& timeline() const { return timeline_; }

 private:
  struct Neighbour {
    int64_t stage, chunk;
    bool exists;
  };
  struct Slot {                                // of a chunk: what is under way for the micro-batch in it
    int64_t holds = -1;                        // its micro-batch, until the backward is done
    int64_t posted = -1, posted_grad = -1;     // micro-batch whose receive was posted
    int64_t sent = -1;                         // micro-batch whose result was sent
    Request recv, send, recv_grad, send_grad;  // default: nothing under way
  };

  Neighbour previous(int64_t chunk) const;
  Neighbour next(int64_t chunk) const;
  Slot& slot(Stage::At at);
  int tag(Stage::At at, bool gradient) const;
  void wait_for(Comm& comm, Request request);
  // Before the action of that number: on a device what is due, elsewhere all whose memory is free, in the list's order.
  void post_receives(size_t number);
  void post_free_receives();
  bool has_room(const Action& action);
  void post(const Action& action);
  bool device_waits() const { return !due_receives_.empty(); }
  void forward(Stage::At at, const Work& work, const Stage::Batch& batch);
  void backward(Stage::At at, const Work& work, const Stage::Batch& batch);

  const Layout layout_;
  Mesh& mesh_;
  Stage& stage_;
  CommRecord& record_;
  std::vector<Action> actions_;
  std::vector<std::vector<Slot>> slots_;
  std::vector<TimedAction> timeline_;
  std::vector<std::vector<Action>> due_receives_;  // by action; empty: the host waits
  std::vector<Action> to_receive_, to_receive_grad_;
  size_t next_receive_ = 0, next_receive_grad_ = 0;
  int64_t rows_ = 0;  // of the running step's micro-batches
  double waited_s_ = 0;
};

}  // namespace rw
