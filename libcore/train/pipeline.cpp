#include "libcore/train/pipeline.h"

#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"

namespace rw {

Pipeline::Pipeline(const Layout& layout, Mesh& mesh, Stage& stage, CommRecord& record)
    : layout_(layout), mesh_(mesh), stage_(stage), record_(record) {
  actions_ = pipeline_actions(layout.pipeline(), static_cast<int>(mesh.place.pp));
  for (int64_t c = 0; c < layout.vpp; ++c) slots_.emplace_back(static_cast<size_t>(stage.slots(c)));
  const PipelineShape shape = layout.pipeline();
  const int me = static_cast<int>(mesh.place.pp);
  for (const Action& a : actions_)
    if (receives(shape, me, a)) (a.kind == ActionKind::forward ? to_receive_ : to_receive_grad_).push_back(a);
  // Activations go up the stages, their gradients down; with virtual stages also from the last to the first.
  std::vector<MessageEdge> up, down;
  const int stages = static_cast<int>(layout.pp);
  for (int s = 0; s < stages && stages > 1; ++s) {
    if (s + 1 == stages && layout.vpp == 1) continue;
    up.push_back({.from = s, .to = (s + 1) % stages});
    down.push_back({.from = (s + 1) % stages, .to = s});
  }
  mesh_.pp_forward->prepare_messages(up);
  mesh_.pp_backward->prepare_messages(down);
  if (mesh_.pp_forward->wait_blocks({})) return;
  std::vector<int64_t> slots;
  for (int64_t c = 0; c < layout.vpp; ++c) slots.push_back(stage.slots(c));
  due_receives_ = receives_before(shape, me, slots);
}

Pipeline::Neighbour Pipeline::previous(int64_t chunk) const {
  if (mesh_.place.pp > 0) return {mesh_.place.pp - 1, chunk, true};
  return {layout_.pp - 1, chunk - 1, chunk > 0};
}

Pipeline::Neighbour Pipeline::next(int64_t chunk) const {
  if (mesh_.place.pp + 1 < layout_.pp) return {mesh_.place.pp + 1, chunk, true};
  return {0, chunk + 1, chunk + 1 < layout_.vpp};
}

Pipeline::Slot& Pipeline::slot(Stage::At at) {
  auto& of_chunk = slots_[static_cast<size_t>(at.chunk)];
  return of_chunk[static_cast<size_t>(at.micro_batch) % of_chunk.size()];
}

// Names a message by the boundary it crosses: the virtual stage above it, and the micro-batch.
int Pipeline::tag(Stage::At at, bool gradient) const {
  const int64_t v = at.chunk * layout_.pp + mesh_.place.pp + (gradient ? 1 : 0);
  return static_cast<int>((v * layout_.micro_batches() + at.micro_batch) % (1 << 20));
}

void Pipeline::wait_for(Comm& comm, Request request) {
  const double start = now_s();
  comm.wait(request);
  waited_s_ += now_s() - start;
}

// A gradient arrives where the result lay, once that is sent.
bool Pipeline::has_room(const Action& a) {
  const Slot& s = slot({a.chunk, a.micro_batch});
  return a.kind == ActionKind::forward ? s.holds < 0 : s.holds == a.micro_batch && s.sent == a.micro_batch;
}

void Pipeline::post(const Action& a) {
  const Stage::At at{a.chunk, a.micro_batch};
  const int64_t bytes = stage_.stream_bytes(rows_);
  Slot& s = slot(at);
  if (a.kind == ActionKind::forward) {
    s.recv = mesh_.pp_forward->recv_start(stage_.input(at), bytes, static_cast<int>(previous(a.chunk).stage),
                                          tag(at, false));
    s.posted = s.holds = a.micro_batch;
  } else {
    s.recv_grad =
        mesh_.pp_backward->recv_start(stage_.output(at), bytes, static_cast<int>(next(a.chunk).stage), tag(at, true));
    s.posted_grad = a.micro_batch;
  }
}

void Pipeline::post_receives(size_t number) {
  if (!device_waits()) return post_free_receives();
  for (const Action& a : due_receives_[number]) {
    CHECK(has_room(a), "chunk %d has no room for a message of micro-batch %d", a.chunk, a.micro_batch);
    if (a.kind != ActionKind::forward)
      wait_for(*mesh_.pp_forward, std::exchange(slot({a.chunk, a.micro_batch}).send, {}));
    post(a);
  }
}

void Pipeline::post_free_receives() {
  const auto can_receive = [this](const Action& a) {
    return has_room(a) &&
           (a.kind == ActionKind::forward || mesh_.pp_forward->done(slot({a.chunk, a.micro_batch}).send));
  };
  const auto post_those_of = [&](const std::vector<Action>& list, size_t& next) {
    for (; next < list.size() && can_receive(list[next]); ++next) post(list[next]);
  };
  post_those_of(to_receive_, next_receive_);
  post_those_of(to_receive_grad_, next_receive_grad_);
}

void Pipeline::forward(Stage::At at, const Work& work, const Stage::Batch& batch) {
  Slot& s = slot(at);
  record_.phase = "forward";
  if (previous(at.chunk).exists) {
    CHECK(s.posted == at.micro_batch, "no receive was posted for chunk %lld, micro-batch %lld",
          static_cast<long long>(at.chunk), static_cast<long long>(at.micro_batch));
    wait_for(*mesh_.pp_forward, s.recv);
  } else {
    CHECK(s.holds < 0, "micro-batch %lld enters a slot that still holds %lld", static_cast<long long>(at.micro_batch),
          static_cast<long long>(s.holds));
    stage_.embed(at, batch, work.to.weights);
  }
  s.holds = at.micro_batch;
  stage_.forward(at, batch, work.to.weights);
  s.send = {};
  if (const Neighbour to = next(at.chunk); to.exists)
    s.send = mesh_.pp_forward->send_start(stage_.output(at), stage_.stream_bytes(rows_), static_cast<int>(to.stage),
                                          tag({at.chunk, at.micro_batch}, true));
  s.sent = at.micro_batch;
}

void Pipeline::backward(Stage::At at, const Work& work, const Stage::Batch& batch) {
  Slot& s = slot(at);
  record_.phase = "backward";
  const Neighbour from = next(at.chunk), to = previous(at.chunk);
  if (from.exists) {
    wait_for(*mesh_.pp_forward, s.send);
    if (!device_waits()) post_free_receives();
    CHECK(s.posted_grad == at.micro_batch, "no receive was posted for the gradient of chunk %lld, micro-batch %lld",
          static_cast<long long>(at.chunk), static_cast<long long>(at.micro_batch));
    wait_for(*mesh_.pp_backward, s.recv_grad);
  } else {
    stage_.head_backward(at, batch, work.d_scale, work.to);
  }
  wait_for(*mesh_.pp_backward, s.send_grad);  // of the slot's previous micro-batch
  stage_.backward(at, batch, work.to);
  if (to.exists)
    s.send_grad = mesh_.pp_backward->send_start(stage_.d_input(at), stage_.stream_bytes(rows_),
                                                static_cast<int>(to.stage), tag(at, false));
}

void Pipeline::run(const Work& work) {
  rows_ = work.batch.rows;
  waited_s_ = 0;
  next_receive_ = next_receive_grad_ = 0;
  timeline_.clear();
  for (auto& of_chunk : slots_) of_chunk.assign(of_chunk.size(), Slot{});
  for (size_t i = 0; i < actions_.size(); ++i) {
    const Action& a = actions_[i];
    const Stage::At at{a.chunk, a.micro_batch};
    const int64_t offset = a.micro_batch * work.batch.rows;
    const Stage::Batch batch{.ids = work.ids + offset, .target = work.targets + offset, .attn = work.batch};
    record_.micro_batch = a.micro_batch;
    const double begin = now_s(), waited = waited_s_;
    post_receives(i);
    switch (a.kind) {
      case ActionKind::forward: forward(at, work, batch); break;
      case ActionKind::backward:
        backward(at, work, batch);
        slot(at).holds = -1;
        break;
      case ActionKind::backward_input: backward(at, work, batch); break;
      case ActionKind::backward_weight:
        record_.phase = "weight gradients";
        stage_.backward_weight(at, batch, work.to);
        slot(at).holds = -1;
        break;
    }
    if (work.after_action) work.after_action();
    timeline_.push_back({.action = a, .begin = begin + waited_s_ - waited, .end = now_s()});
  }
  for (auto& of_chunk : slots_)
    for (const Slot& s : of_chunk) wait_for(*mesh_.pp_backward, s.send_grad);
  record_.micro_batch = -1;
}

double Pipeline::evaluate(const Stage::Batch& batch, WeightSource& weights) {
  const int64_t bytes = stage_.stream_bytes(batch.attn.rows);
  record_.phase = "validation";
  Request sent;
  for (int64_t c = 0; c < layout_.vpp; ++c) {
    const Stage::At at{c, 0};
    Comm& comm = *mesh_.pp_forward;
    if (const Neighbour from = previous(c); from.exists)
      comm.recv(stage_.input(at), bytes, static_cast<int>(from.stage), tag(at, false));
    else stage_.embed(at, batch, weights);
    comm.wait(sent);
    stage_.forward(at, batch, weights);
    const Neighbour to = next(c);
    if (!to.exists) return stage_.loss(at, batch, weights);
    sent = comm.send_start(stage_.output(at), bytes, static_cast<int>(to.stage), tag(at, true));
  }
  mesh_.pp_forward->wait(sent);
  return 0;
}

}  // namespace rw
