#include "libcore/serve/rank_plans.h"

#include <utility>

namespace rw {
namespace {

constexpr int kTag = 71;

// Where nothing is computed the ranks would not hear of each other.
void show_life(Comm& tp) { tp.all_reduce_value(int64_t{1}, ReduceOp::sum); }

class LeadRunner final : public StepRunner {
 public:
  LeadRunner(std::unique_ptr<ModelRunner> runner, Comm& tp) : runner_(std::move(runner)), tp_(tp) {}

  StepOutput run(const StepPlan& plan) override {
    if (tp_.size() == 1) return runner_->run(plan);
    const std::vector<std::byte> packed = pack_plan(plan);
    const auto bytes = static_cast<int64_t>(packed.size());
    for (int r = 1; r < tp_.size(); ++r) {
      tp_.send(&bytes, sizeof bytes, r, kTag);
      tp_.send(packed.data(), bytes, r, kTag);
    }
    if (plan.stop) return {};
    StepOutput result = runner_->run(plan);
    if (plan.rows.empty()) show_life(tp_);
    return result;
  }
  void idle() override {
    if (tp_.size() > 1) run({.step = -1});
  }

 private:
  std::unique_ptr<ModelRunner> runner_;
  Comm& tp_;
};

}  // namespace

std::unique_ptr<StepRunner> make_lead_runner(std::unique_ptr<ModelRunner> runner, Comm& tp) {
  return std::make_unique<LeadRunner>(std::move(runner), tp);
}

void follow_plans(ModelRunner& runner, Comm& tp) {
  std::vector<std::byte> packed;
  while (true) {
    int64_t bytes = 0;
    tp.recv(&bytes, sizeof bytes, 0, kTag);
    packed.resize(static_cast<size_t>(bytes));
    tp.recv(packed.data(), bytes, 0, kTag);
    const StepPlan plan = unpack_plan(packed);
    if (plan.stop) return;
    runner.run(plan);
    if (plan.rows.empty()) show_life(tp);
  }
}

}  // namespace rw
