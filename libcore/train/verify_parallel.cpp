#include "libcore/train/verify_parallel.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/train/train_state.h"

namespace rw {
namespace {

constexpr int kTag = 77;

// Whole f32 tensors in memory.
class GatheredTensors final : public TensorSource {
 public:
  void add(const TensorPiece& piece, const float* data) {
    std::vector<float>& whole_data = data_[piece.name];
    if (whole_data.empty()) {
      whole_data.resize(static_cast<size_t>(n_elements(piece.shape)));
      infos_.push_back({.name = piece.name, .dtype = DType::f32, .shape = piece.shape});
    }
    for_each_run(piece.box, piece.box, whole(piece.shape),
                 [&](int64_t from, int64_t to, int64_t n) { std::copy_n(data + from, n, whole_data.begin() + to); });
  }
  void sort() {
    std::sort(infos_.begin(), infos_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  std::string where() const override { return "the ranks' memory"; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, DType t, void* dst) const override {
    const auto found = data_.find(name);
    CHECK(found != data_.end() && t == DType::f32, "no f32 tensor %s was gathered", name.c_str());
    for_each_run(box, whole(find(name)->shape), box, [&](int64_t from, int64_t to, int64_t n) {
      std::copy_n(found->second.begin() + from, n, static_cast<float*>(dst) + to);
    });
  }

 private:
  std::map<std::string, std::vector<float>> data_;
  std::vector<TensorInfo> infos_;
};

Json describe(const std::vector<TensorPiece>& pieces) {
  Json list = Json::array();
  for (const TensorPiece& p : pieces)
    list.push_back({{"name", p.name}, {"shape", p.shape}, {"offset", p.box.offset}, {"extent", p.box.extent}});
  return list;
}

Layout one_rank(const Layout& layout, int64_t layers) {
  Layout one;
  one.micro_batch = layout.micro_batch;
  one.global_batch = layout.global_batch;
  one.seq_len = layout.seq_len;
  one.stage_layers = {layers};
  return one;
}

double relative(double a, double b) { return b == 0 ? std::abs(a) : std::abs(a - b) / std::abs(b); }

}  // namespace

std::unique_ptr<TensorSource> gather_tensors(Comm& world, const std::vector<TensorPiece>& pieces,
                                             const HostTensors& host) {
  auto all = std::make_unique<GatheredTensors>();
  const std::vector<std::string> texts = world.gather_text(describe(pieces).dump());
  std::vector<float> message, room;
  const auto values = [&](const TensorPiece& p) {
    return host.view(static_cast<const float*>(p.data), p.box.size(), room);
  };
  if (world.rank() != 0) {
    for (const TensorPiece& p : pieces) {
      const float* mine = values(p);
      message.insert(message.end(), mine, mine + p.box.size());
    }
    world.send(message.data(), static_cast<int64_t>(message.size() * sizeof(float)), 0, kTag);
    return all;
  }
  for (const TensorPiece& p : pieces) all->add(p, values(p));
  for (int r = 1; r < world.size(); ++r) {
    std::vector<TensorPiece> theirs;
    int64_t n = 0;
    for (const Json& p : Json::parse(texts[static_cast<size_t>(r)])) {
      theirs.push_back({.name = p["name"],
                        .dtype = DType::f32,
                        .shape = p["shape"],
                        .box = {.offset = p["offset"], .extent = p["extent"]},
                        .data = nullptr});
      n += theirs.back().box.size();
    }
    message.resize(static_cast<size_t>(n));
    world.recv(message.data(), n * static_cast<int64_t>(sizeof(float)), r, kTag);
    const float* at = message.data();
    for (const TensorPiece& p : theirs) {
      all->add(p, at);
      at += p.box.size();
    }
  }
  all->sort();
  return all;
}

struct ParallelCheck::Reference {
  Reference(const StepSettings& settings, int threads)
      : self(make_self_comm()),
        mesh(make_mesh(*self, {}, record)),
        step({.spec = settings.spec,
              .layout = one_rank(settings.layout, settings.spec.layers),
              .adam = settings.adam,
              .clip_norm = settings.clip_norm},
             {.ops = this_cpu_ops(), .stream = {.threads = threads}, .t = DType::f32}, mesh, record, arena) {}
  Arena arena;
  std::shared_ptr<CommRecord> record = std::make_shared<CommRecord>();
  std::unique_ptr<Comm> self;
  Mesh mesh;
  TrainStep step;
};

ParallelCheck::ParallelCheck(const StepSettings& settings, TrainStep& step, int threads) : step_(step) {
  const std::unique_ptr<TensorSource> now = gather_tensors(*step.mesh().world, checkpoint_pieces(step), step.host());
  if (step.mesh().world->rank() != 0) return;
  reference_ = std::make_unique<Reference>(settings, threads);
  load_params(reference_->step, *now, Load::weights_and_moments);
  reference_->step.optimizer().set_steps_taken(step.optimizer().steps_taken());
}

ParallelCheck::~ParallelCheck() = default;

ParallelReport ParallelCheck::compare(const StepInputs& inputs, const StepResult& result, const ReadSamples& read) {
  const std::unique_ptr<TensorSource> grads = gather_tensors(*step_.mesh().world, gradient_pieces(step_), step_.host());
  ParallelReport report;
  if (!reference_) return report;
  StepClock clock;
  clock.start();
  TrainStep& reference = reference_->step;
  const StepResult expected = reference.run(
      {.first_sample = inputs.first_sample, .lr = inputs.lr, .allow = [&](double, double) { return result.updated; }},
      read, clock);
  report.loss_error = relative(result.loss, expected.loss);
  report.norm_error = relative(result.grad_norm, expected.grad_norm);
  std::map<int64_t, double> largest;  // |gradient| by layer
  std::vector<float> tensor;
  for (const int pass : {0, 1})
    for (const ShardPiece& piece : reference.shards().own_pieces()) {
      const LocalParam& p = reference.layout().params()[piece.param];
      const float* want = reference.grads().at(piece);
      if (pass == 0) {
        for (int64_t i = 0; i < piece.n; ++i)
          largest[p.layer] = std::max(largest[p.layer], std::abs(static_cast<double>(want[i])));
        continue;
      }
      tensor.resize(static_cast<size_t>(piece.n));
      grads->read(p.name, whole(p.shape), DType::f32, tensor.data());
      double worst = 0;
      for (int64_t i = 0; i < piece.n; ++i) {
        const double got = static_cast<double>(tensor[static_cast<size_t>(i)]) / inputs.loss_scale;
        const double error = std::abs(got - static_cast<double>(want[i]));
        worst = error <= worst ? worst : error;  // NaN is worst
      }
      report.tensors.push_back({.name = p.name, .error = worst / std::max(largest[p.layer], 1e-30)});
    }
  std::stable_sort(report.tensors.begin(), report.tensors.end(),
                   [](const TensorError& a, const TensorError& b) { return !(a.error <= b.error); });
  return report;
}

}  // namespace rw
