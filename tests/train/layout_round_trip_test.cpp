// A state keeps its bits through any chain of layouts: saved by the ranks of one and loaded by those of another, or
// resharded without ranks. Nothing is trained: masters and moments are made-up values, all different.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "libcore/base/rng.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/reshard.h"
#include "libcore/train/layout_pieces.h"
#include "libcore/train/train_state.h"
#include "tests/ckpt/scratch_dir.h"
#include "tests/support/layout_matrix.h"

using namespace rw;
using namespace rw::parallel;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kStep = 12;

// Waiting for a disk would be most of these tests; what they look at are bits.
class FilesInMemory {
 public:
  FilesInMemory() {
    if (!fs::is_directory("/dev/shm")) return;
    if (const char* text = std::getenv("TMPDIR")) before_ = text;
    ::setenv("TMPDIR", "/dev/shm", 1);
  }
  FilesInMemory(const FilesInMemory&) = delete;
  FilesInMemory& operator=(const FilesInMemory&) = delete;
  ~FilesInMemory() {
    if (before_.empty()) ::unsetenv("TMPDIR");
    else ::setenv("TMPDIR", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

bool full() {
  const char* text = std::getenv("RANKWRIGHT_FULL");
  return text != nullptr && std::string_view(text) == "1";
}

// Weights and moments in memory: every element its own bits, finite, by name and place alone.
class MadeUp : public TensorSource {
 public:
  explicit MadeUp(const ModelSpec& model) {
    for (const Param& p : param_table(model))
      for (const char* prefix : {"", "adam.m/", "adam.v/"}) tensors_.push_back({prefix + p.name, DType::f32, p.shape});
    std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    uint32_t next = 0x3e000001u;
    for (const TensorInfo& t : tensors_) {
      std::vector<float>& values = data_[t.name];
      values.resize(static_cast<size_t>(n_elements(t.shape)));
      for (float& x : values) {
        const auto sign = static_cast<uint32_t>(random_bits(rng_key(1, "sign"), next) & 1);
        const uint32_t bits = next++ | sign << 31;
        std::memcpy(&x, &bits, sizeof x);
      }
    }
  }
  std::string where() const override { return "made up"; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, DType, void* dst) const override {
    for_each_run(box, whole(find(name)->shape), box, [&](int64_t from, int64_t to, int64_t n) {
      std::memcpy(static_cast<float*>(dst) + to, data_.at(name).data() + from, static_cast<size_t>(n) * sizeof(float));
    });
  }

 private:
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::vector<float>> data_;
};

TrainState made_up_state() {
  TrainState state{.step = kStep, .samples = 191, .tokens = 12345, .updates = 11, .skipped = 1};
  state.seq_len = 13, state.seed = 5, state.global_batch = 16, state.data_fingerprint = "00ff";
  state.loss_scale = R"({"scale":4096.0,"good_steps":3})";
  return state;
}

// The ranks of a layout load the source, and save.
void load_and_save(const Case& c, const TensorSource& source, const Json& state, const fs::path& to) {
  run_thread_ranks(static_cast<int>(c.layout.ranks()), [&](Comm& world) {
    world.set_timeout(60);
    const auto record = std::make_shared<CommRecord>();
    Mesh mesh = make_mesh(world, mesh_shape_of(c), record);
    Arena arena;
    TrainStep step(settings_of(c), exec_of(c), mesh, record, arena);
    load_params(step, source, Load::weights_and_moments);
    save_checkpoint(to, kStep, checkpoint_pieces(step), Json{{"layout", c.layout.text()}}, state, world);
  });
}

fs::path step_of(const fs::path& dir) { return dir / "step-00000012"; }

NewCheckpoint resharded(const Case& c, const Manifest& source, const fs::path& to) {
  NewCheckpoint target{
      .checkpoints_dir = to, .step = source.step, .files = {}, .identity = "{}", .state = source.state};
  const Layout layout = dealt(c.layout, c.model);
  for (int64_t rank = 0; rank < layout.ranks(); ++rank)
    target.files.push_back(
        layout_pieces({.model = c.model, .layout = layout, .ranks_per_node = mesh_shape_of(c).ranks(), .rank = rank}));
  return target;
}

void reshard_to(const fs::path& from, const Case& c, const fs::path& to, const ReshardOptions& options) {
  const Checkpoint source(from);
  const auto self = make_self_comm();
  const auto rows = checkpoint_rows(from, source.manifest());
  reshard(*rows, resharded(c, source.manifest(), to), options, *self);
}

// "" when two manifests say the same of tensors, boxes, places and digests, and of the state.
std::string manifest_difference(const fs::path& a, const fs::path& b) {
  const Manifest x = Checkpoint(a).manifest(), y = Checkpoint(b).manifest();
  if (x.state != y.state) return x.state + " and " + y.state;
  if (x.files.size() != y.files.size()) return "numbers of files";
  for (size_t f = 0; f < x.files.size(); ++f)
    if (x.files[f].name != y.files[f].name || x.files[f].bytes != y.files[f].bytes ||
        x.files[f].rest_digest != y.files[f].rest_digest)
      return x.files[f].name;
  if (x.tensors.size() != y.tensors.size()) return "numbers of tensors";
  for (size_t t = 0; t < x.tensors.size(); ++t) {
    const TensorRecord &p = x.tensors[t], &q = y.tensors[t];
    if (p.info.name != q.info.name || p.info.dtype != q.info.dtype || p.info.shape != q.info.shape ||
        p.pieces.size() != q.pieces.size())
      return p.info.name;
    for (size_t i = 0; i < p.pieces.size(); ++i)
      if (p.pieces[i].box != q.pieces[i].box || p.pieces[i].file != q.pieces[i].file ||
          p.pieces[i].at != q.pieces[i].at || p.pieces[i].digest != q.pieces[i].digest)
        return p.info.name + " " + box_text(p.pieces[i].box);
  }
  return "";
}

// "" when a checkpoint holds the made-up values, all of them and nothing else, and the state.
std::string value_difference(const fs::path& dir, const MadeUp& expected, const Json& state) {
  const Checkpoint checkpoint(dir);
  if (checkpoint.state() != state) return "state " + checkpoint.state().dump();
  if (checkpoint.tensors().size() != expected.tensors().size()) return "numbers of tensors";
  for (const TensorInfo& t : expected.tensors()) {
    std::vector<float> found(static_cast<size_t>(n_elements(t.shape))), wanted = found;
    checkpoint.read(t.name, whole(t.shape), DType::f32, found.data());
    expected.read(t.name, whole(t.shape), DType::f32, wanted.data());
    if (std::memcmp(found.data(), wanted.data(), found.size() * sizeof(float)) != 0) return t.name;
  }
  return "";
}

// Combinations of the matrix that cut a model differently: recomputation and the order of the schedule cut nothing.
std::vector<Case> sharding_cases() {
  std::map<std::string, Case> cases;
  for (const Combination& c : full() ? layout_matrix() : pairwise_cover(layout_matrix())) {
    Layout layout = c.layout();
    layout.recompute = Recompute::none;
    layout.schedule = layout.vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
    layout.sp = false;
    cases.try_emplace(c.family_name() + " " + layout.text(),
                      Case{.model = family_model(c.family_name()), .layout = layout});
  }
  std::vector<Case> list;
  for (auto& [name, c] : cases) list.push_back(c);
  return list;
}

std::string name_of(const Case& c) { return std::string(family_name(c.model.family)) + " " + c.layout.text(); }

Case alone(const ModelSpec& model) { return {.model = model, .layout = base_layout()}; }

}  // namespace

TEST_CASE("every layout gives a state to one rank and gets it back, bit for bit") {
  const FilesInMemory in_memory;
  const std::vector<Case> cases = sharding_cases();
  const Json state = state_json(made_up_state());
  std::map<Family, MadeUp> values;
  for (const Case& c : cases) {
    CAPTURE(name_of(c));
    const MadeUp& source = values.try_emplace(c.model.family, c.model).first->second;
    const ScratchDir dir;
    load_and_save(c, source, state, dir / "a");
    load_and_save(alone(c.model), Checkpoint(step_of(dir / "a")), state, dir / "one");
    REQUIRE(value_difference(step_of(dir / "one"), source, state) == "");
    load_and_save(c, Checkpoint(step_of(dir / "one")), state, dir / "a again");
    REQUIRE(value_difference(step_of(dir / "a again"), source, state) == "");
    REQUIRE(manifest_difference(step_of(dir / "a"), step_of(dir / "a again")) == "");

    // The same without ranks.
    reshard_to(step_of(dir / "a"), alone(c.model), dir / "r one", {});
    REQUIRE(manifest_difference(step_of(dir / "one"), step_of(dir / "r one")) == "");
    reshard_to(step_of(dir / "r one"), c, dir / "r a", {.memory_bytes = 128 << 10, .threads = 1});
    REQUIRE(manifest_difference(step_of(dir / "a"), step_of(dir / "r a")) == "");
    REQUIRE(Checkpoint(step_of(dir / "r a")).verify().empty());
  }
  MESSAGE(cases.size() << " layouts");
}

// 200 of them with RANKWRIGHT_FULL=1, the first few otherwise.
TEST_CASE("seeded pairs of layouts: there and back") {
  const FilesInMemory in_memory;
  const std::vector<Case> cases = [] {
    std::map<std::string, Case> all;
    for (const Combination& c : layout_matrix()) {
      Layout layout = c.layout();
      layout.recompute = Recompute::none;
      all.try_emplace(c.family_name() + " " + layout.text(),
                      Case{.model = family_model(c.family_name()), .layout = layout});
    }
    std::vector<Case> list;
    for (auto& [name, c] : all) list.push_back(c);
    return list;
  }();
  const size_t pairs = full() ? 200 : 16;
  const Json state = state_json(made_up_state());
  std::map<Family, MadeUp> values;
  std::set<std::pair<std::string, std::string>> met;
  const uint64_t key = rng_key(4, "pairs of layouts");
  for (uint64_t draw = 0; met.size() < pairs; ++draw) {
    const Case& a = cases[random_bits(key, 2 * draw) % cases.size()];
    const Case& b = cases[random_bits(key, 2 * draw + 1) % cases.size()];
    if (a.model.family != b.model.family || !met.emplace(name_of(a), name_of(b)).second) continue;
    CAPTURE(name_of(a));
    CAPTURE(name_of(b));
    const MadeUp& source = values.try_emplace(a.model.family, a.model).first->second;
    const ScratchDir dir;
    const auto through_ranks = [&](const Case& c, const TensorSource& from, const char* to) {
      load_and_save(c, from, state, dir / to);
    };
    through_ranks(a, source, "a");
    reshard_to(step_of(dir / "a"), b, dir / "r b", {.memory_bytes = 1 << 20, .threads = 2});
    through_ranks(b, Checkpoint(step_of(dir / "a")), "b");
    through_ranks(a, Checkpoint(step_of(dir / "b")), "a again");
    REQUIRE(manifest_difference(step_of(dir / "a"), step_of(dir / "a again")) == "");
    REQUIRE(manifest_difference(step_of(dir / "b"), step_of(dir / "r b")) == "");
    reshard_to(step_of(dir / "r b"), a, dir / "r a", {.memory_bytes = 128 << 10, .threads = 1});
    REQUIRE(manifest_difference(step_of(dir / "a"), step_of(dir / "r a")) == "");
    REQUIRE(value_difference(step_of(dir / "r a"), source, state) == "");
  }
}

// What a rank writes is asked of the trainer itself, on every rank, nodes included.
TEST_CASE("layout_pieces: what the ranks of a layout write, without them") {
  for (const std::string family : {"gpt2", "llama", "qwen2"}) {
    Case c{.model = family_model(family), .layout = base_layout(), .ranks_per_node = 4};
    c.layout.tp = c.layout.dp = c.layout.pp = 2;
    c.layout.zero = 3;
    c.layout.zero_group = ZeroGroup::node;
    const Layout layout = dealt(c.layout, c.model);
    run_thread_ranks(
        8,
        [&](Comm& world) {
          world.set_timeout(60);
          const auto record = std::make_shared<CommRecord>();
          Mesh mesh = make_mesh(world, mesh_shape_of(c), record);
          Arena arena;
          TrainStep step(settings_of(c), exec_of(c), mesh, record, arena);
          const std::vector<TensorPiece> real = checkpoint_pieces(step);
          const std::vector<TensorPiece> known =
              layout_pieces({.model = c.model, .layout = layout, .ranks_per_node = 4, .rank = world.rank()});
          bool same = real.size() == known.size();
          for (size_t i = 0; same && i < real.size(); ++i)
            same = real[i].name == known[i].name && real[i].dtype == known[i].dtype &&
                   real[i].shape == known[i].shape && real[i].box == known[i].box && known[i].data == nullptr;
          if (!same) throw std::runtime_error("rank " + std::to_string(world.rank()) + " writes other pieces");
        },
        4);
  }
}
