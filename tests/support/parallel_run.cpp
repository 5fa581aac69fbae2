#include "tests/support/parallel_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "libcore/base/rng.h"
#include "libcore/train/train_state.h"

namespace rw::parallel {

ModelSpec family_model(const std::string& family) {
  ModelSpec s;
  s.layers = 9;
  s.heads = 4;
  s.vocab_size = 61;
  s.max_position = 16;
  s.width = 24;
  s.head_dim = 6;
  s.ffn = 44;
  s.init_std = 0.2;
  if (family == "gpt2") {
    s.family = Family::gpt2;
    s.kv_heads = 4;
    s.qkv_bias = s.out_bias = s.mlp_bias = s.tied_head = true;
  } else if (family == "llama") {
    s.family = Family::llama;
    s.kv_heads = 2;
  } else {
    s.family = Family::qwen2;
    s.kv_heads = 1;
    s.qkv_bias = s.tied_head = true;
  }
  return s;
}

Layout base_layout() {
  Layout l;
  l.micro_batch = 1;
  l.global_batch = 16;
  l.seq_len = 13;
  return l;
}

Layout dealt(const Layout& layout, const ModelSpec& model) {
  Layout l = layout;
  if (l.stage_layers.empty()) l.stage_layers = deal_layers(model, l.pp * l.vpp, l.seq_len);
  return l;
}

StepSettings settings_of(const Case& c) {
  return {.spec = c.model,
          .layout = dealt(c.layout, c.model),
          .adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-4f, .weight_decay = 0.1f},
          .clip_norm = c.clip_norm};
}

Exec exec_of(const Case& c) { return {.ops = cpu_ops(), .stream = {.threads = 1}, .t = c.t}; }

ReadSamples reader(const Case& c) {
  const int64_t seq_len = c.layout.seq_len, vocab = c.model.vocab_size;
  return [=](int64_t first, int64_t n, int32_t* ids, int32_t* targets) {
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t key = rng_key(static_cast<uint64_t>(first + i), "sample");
      const int64_t ignored = static_cast<int64_t>(random_bits(key, 1000)) & 7;
      for (int64_t t = 0; t < seq_len; ++t) {
        // Squared: some tokens are far more frequent, so that there is something to learn.
        const auto token = [&](int64_t at) {
          const double u = static_cast<double>(random_bits(key, static_cast<uint64_t>(at)) >> 11) * 0x1p-53;
          return static_cast<int32_t>(u * u * static_cast<double>(vocab));
        };
        ids[i * seq_len + t] = token(t);
        targets[i * seq_len + t] = t < ignored ? -1 : token(t + 1);
      }
    }
    return static_cast<uint64_t>(n);
  };
}

namespace {

// The neighbour of p among the numbers of this type.
float next_of(float p, bool up, DType t) {
  const float limit = std::numeric_limits<float>::infinity();
  if (t == DType::f32) return std::nextafter(p, up ? limit : -limit);
  const bool away = up == (p > 0);
  const uint32_t ulp = t == DType::bf16 ? 1u << 16 : 1u << 13, bits = std::bit_cast<uint32_t>(p);
  return std::bit_cast<float>(away ? bits + ulp : bits - ulp);
}

}  // namespace

MeshShape mesh_shape_of(const Case& c) {
  return mesh_shape(c.layout, c.model, c.ranks_per_node > 0 ? c.ranks_per_node : c.layout.ranks());
}

void initialise(TrainStep& step, const Case& c) {
  init_weights(step, 7);
  if (c.nudge == 0) return;
  std::vector<float> values, room;
  for (const ShardPiece& piece : step.shards().own_pieces()) {
    const float* now = step.host().view(step.weights().at(piece), piece.n, room);
    values.assign(now, now + piece.n);
    for (int64_t i = 0; i < piece.n; ++i) {
      float& p = values[static_cast<size_t>(i)];
      const auto at = static_cast<uint64_t>(piece.offset + i);
      if (p != 0) p = next_of(p, random_bits(rng_key(static_cast<uint64_t>(c.nudge), "ulp"), at) & 1, c.t);
    }
    step.host().write(step.weights().at(piece), values.data(), piece.n);
  }
  step.weights().loaded();
}

Curve run_steps(TrainStep& step, const Case& c, int64_t first, int64_t last) {
  Curve curve;
  StepClock clock;
  for (int64_t i = first; i < last; ++i) {
    clock.start();
    const StepResult r = step.run({.first_sample = i * c.layout.global_batch, .lr = c.lr}, reader(c), clock);
    curve.losses.push_back(r.loss);
    curve.grad_norms.push_back(r.grad_norm);
  }
  return curve;
}

Curve train_rank(Comm& world, const Case& c, const std::function<void(TrainStep&)>& after) {
  world.set_timeout(60);
  const TestRank rank(world, c.device);
  const auto record = std::make_shared<CommRecord>();
  Mesh mesh = make_mesh(rank.world(), mesh_shape_of(c), record);
  Arena arena(rank.memory());
  TrainStep step(settings_of(c), rank.exec(c.t), mesh, record, arena);
  initialise(step, c);
  const Curve curve = run_steps(step, c, 0, c.steps);
  rank.device().wait();  // the last update, which ranks may still gather: `after` may make them take turns
  if (after) after(step);
  return curve;
}

Curve train(const Case& c, const std::function<void(TrainStep&)>& after) {
  std::mutex mutex;
  std::vector<Curve> curves;
  run_thread_ranks(static_cast<int>(c.layout.ranks()), [&](Comm& world) {
    const Curve curve = train_rank(world, c, after);
    const std::lock_guard lock(mutex);
    curves.push_back(curve);
  });
  for (const Curve& curve : curves)
    if (curve != curves[0]) throw std::runtime_error("the ranks do not agree on losses and norms");
  return curves[0];
}

Trained train_whole(const Case& c) {
  Trained result;
  std::mutex mutex;
  result.curve = train(c, [&](TrainStep& step) {
    std::vector<float> room;
    for (const TensorPiece& piece : checkpoint_pieces(step)) {
      // Waits for the device, which waits for other ranks: nothing is locked meanwhile.
      const float* data = step.host().view(static_cast<const float*>(piece.data), piece.box.size(), room);
      const std::lock_guard lock(mutex);
      std::vector<float>& whole_tensor = result.tensors[piece.name];
      if (whole_tensor.empty())  // what no rank writes stays NaN
        whole_tensor.assign(static_cast<size_t>(n_elements(piece.shape)), std::numeric_limits<float>::quiet_NaN());
      for_each_run(piece.box, piece.box, whole(piece.shape), [&](int64_t from, int64_t to, int64_t n) {
        std::copy_n(data + from, n, whole_tensor.begin() + to);
      });
    }
  });
  return result;
}

std::string difference(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return std::to_string(a.size()) + " and " + std::to_string(b.size()) + " tensors";
  for (const auto& [name, x] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != x.size()) return name + " is missing or of another size";
    for (size_t i = 0; i < x.size(); ++i)
      if (!(x[i] == other->second[i]))
        return name + "[" + std::to_string(i) + "]: " + std::to_string(x[i]) + " and " +
               std::to_string(other->second[i]);
  }
  return "";
}

Curve rounding_bound(Case c) {
  std::vector<Curve> runs;
  for (int64_t seed = 1; seed <= 5; ++seed) {
    c.nudge = seed;
    runs.push_back(train(c));
  }
  const auto bound_of = [&](auto member) {
    std::vector<double> bound;
    double spread = 0;
    for (size_t i = 0; i < (runs[0].*member).size(); ++i) {
      double low = (runs[0].*member)[i], high = low;
      for (const Curve& run : runs) low = std::min(low, (run.*member)[i]), high = std::max(high, (run.*member)[i]);
      spread = std::max(spread, high - low);
      bound.push_back(8 * spread);
    }
    return bound;
  };
  return {.losses = bound_of(&Curve::losses), .grad_norms = bound_of(&Curve::grad_norms)};
}

double worst_ratio(const Curve& got, const Curve& expected, const Curve& bound) {
  double worst = 0;
  const auto compare = [&](const std::vector<double>& a, const std::vector<double>& b,
                           const std::vector<double>& within) {
    if (a.size() != b.size()) throw std::runtime_error("curves of different lengths");
    for (size_t i = 0; i < a.size(); ++i) {
      const double ratio = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]) / within[i];
      worst = std::max(worst, std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio);
    }
  };
  compare(got.losses, expected.losses, bound.losses);
  compare(got.grad_norms, expected.grad_norms, bound.grad_norms);
  return worst;
}

bool first_step_close(const Curve& got, const Curve& expected) {
  return std::abs(got.losses[0] - expected.losses[0]) <= 1e-5 * expected.losses[0] &&
         std::abs(got.grad_norms[0] - expected.grad_norms[0]) <= 1e-5 * expected.grad_norms[0];
}

}  // namespace rw::parallel
