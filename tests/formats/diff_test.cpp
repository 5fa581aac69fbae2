#include "libcore/formats/diff.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "libcore/tensor/element_stream.h"
#include "tests/ckpt/saves.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

using Kind = TensorDifference::Kind;

// The differences of one tensor of given numbers.
template <typename T>
TensorComparison compared(DType dtype, const std::vector<T>& a, const std::vector<T>& b) {
  const ScratchDir dir;
  const Shape shape = {static_cast<int64_t>(a.size())};
  const Checkpoint in_a(saves::tensors(dir / "a", 1, {saves::values<T>("t", dtype, shape, a)}));
  const Checkpoint in_b(saves::tensors(dir / "b", 1, {saves::values<T>("t", dtype, shape, b)}));
  int64_t read = 0;
  const TensorComparison c = compare_tensor(in_a, in_b, "t", [&](int64_t bytes) { read += bytes; });
  CHECK(read == static_cast<int64_t>(2 * a.size() * sizeof(T)));
  CHECK(c.n == shape[0]);
  return c;
}

const KeyDifference* find(const std::vector<KeyDifference>& list, const std::string& key) {
  for (const KeyDifference& d : list) {
    if (d.key == key) return &d;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("the same tensors in any two layouts do not differ") {
  const ScratchDir dir;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const fs::path a = saves::made_up(dir / "a", 7, 1 + static_cast<int>(seed % 5), seed, 3);
    const fs::path b = saves::made_up(dir / "b", 9, 1 + static_cast<int>(seed % 3), seed + 100, 3);
    const CheckpointDiff diff = diff_checkpoints(a, b, {});
    CHECK(diff.tensors.empty());
    CHECK(diff.n_equal == static_cast<int64_t>(layouts::model().size()));
    CHECK(diff.a.step == 7);
    CHECK(diff.b.step == 9);
  }
  // Another salt changes every tensor that has elements.
  const fs::path a = saves::made_up(dir / "a", 7, 2, 1, 3), c = saves::made_up(dir / "c", 7, 3, 2, 4);
  CHECK(diff_checkpoints(a, c, {}).tensors.size() == layouts::model().size() - 1);
  CHECK(diff_checkpoints(a, c, {}).n_equal == 1);
}

TEST_CASE("the largest difference, its place, and how many, as counted by hand") {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> value(-3.0f, 3.0f);
  // More than one part; the last one odd.
  const Shape shape = {521, 1031};
  std::vector<float> a(521 * 1031);
  for (float& v : a) v = value(random);
  for (const size_t n_planted : {size_t{1}, size_t{2}, size_t{1000}, a.size()}) {
    std::vector<float> b = a;
    for (size_t i = 0; i < n_planted; ++i) b[n_planted == a.size() ? i : random() % a.size()] += value(random) / 16;
    double max_abs = 0, largest = 0;
    int64_t different = 0;
    size_t at = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double distance = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      different += distance > 0;
      if (distance > max_abs) max_abs = distance, at = i;
      largest = std::max({largest, std::fabs(static_cast<double>(a[i])), std::fabs(static_cast<double>(b[i]))});
    }
    const ScratchDir dir;
    const Checkpoint in_a(saves::tensors(dir / "a", 1, {saves::values<float>("t", DType::f32, shape, a)}));
    const Checkpoint in_b(saves::tensors(dir / "b", 1, {saves::values<float>("t", DType::f32, shape, b)}));
    const TensorComparison c = compare_tensor(in_a, in_b, "t", nullptr);
    CHECK(c.n_different == different);
    CHECK(c.n_unlike == 0);
    CHECK(c.max_abs == max_abs);
    CHECK(c.largest == largest);
    CHECK(c.relative() == max_abs / largest);
    CHECK(c.at == Shape{static_cast<int64_t>(at / 1031), static_cast<int64_t>(at % 1031)});
  }
}

TEST_CASE("numbers that are no numbers, zeros, and integers beyond f64") {
  const float nan = std::nanf(""), other_nan = std::nanf("7"), inf = std::numeric_limits<float>::infinity();
  TensorComparison c = compared<float>(DType::f32, {nan, inf, -inf, 0.0f, 5.0f}, {other_nan, inf, -inf, -0.0f, 5.0f});
  CHECK(c.n_different == 0);
  CHECK(c.relative() == 0);
  c = compared<float>(DType::f32, {nan, inf, 1.0f, 1.0f, 8.0f}, {1.0f, -inf, inf, 2.0f, 8.0f});
  CHECK(c.n_different == 4);
  CHECK(c.n_unlike == 3);
  CHECK(c.max_abs == 1);
  CHECK(c.largest == 8);
  CHECK(c.at == Shape{3});
  c = compared<float>(DType::f32, {1.0f, nan}, {1.0f, 1.0f});
  CHECK(c.n_unlike == 1);
  CHECK(c.at == Shape{1});
  constexpr int64_t kBig = int64_t{1} << 53, kMost = std::numeric_limits<int64_t>::max();
  c = compared<int64_t>(DType::i64, {kBig, kMost, 3}, {kBig + 1, kMost - 2, 3});
  CHECK(c.n_different == 2);
  CHECK(c.max_abs == 2);
  c = compared<int64_t>(DType::i64, {-kMost - 1}, {kMost});
  CHECK(c.max_abs == 0x1p64);
  CHECK(compared<uint8_t>(DType::u8, {1, 255}, {1, 0}).max_abs == 255);
  CHECK(compared<float>(DType::f32, {}, {}).n_different == 0);
}

TEST_CASE("tensors that are missing, or have another shape or dtype") {
  const ScratchDir dir;
  const auto f32 = [](const char* name, const Shape& shape, const std::vector<float>& x) {
    return saves::values<float>(name, DType::f32, shape, x);
  };
  const auto bf16 = [](const char* name, const std::vector<uint16_t>& x) {
    return saves::values<uint16_t>(name, DType::bf16, {static_cast<int64_t>(x.size())}, x);
  };
  const fs::path a = saves::tensors(dir / "a", 1,
                                    {f32("gone", {1}, {1}), f32("shape", {2, 3}, {1, 2, 3, 4, 5, 6}),
                                     f32("same", {1}, {1}), f32("narrow", {2}, {1, -2}), f32("rounded", {1}, {1.01f})});
  const fs::path b =
      saves::tensors(dir / "b", 1,
                     {f32("new", {1}, {1}), f32("shape", {3, 2}, {1, 2, 3, 4, 5, 6}), f32("same", {1}, {1}),
                      bf16("narrow", {0x3f80, 0xc000}), bf16("rounded", {0x3f81})});
  CheckpointDiff diff = diff_checkpoints(a, b, {});
  std::map<std::string, Kind> kinds;
  for (const TensorDifference& d : diff.tensors) kinds[d.name] = d.kind;
  CHECK(kinds == std::map<std::string, Kind>{{"gone", Kind::only_in_a},
                                             {"new", Kind::only_in_b},
                                             {"shape", Kind::shape},
                                             {"narrow", Kind::dtype},
                                             {"rounded", Kind::values}});
  CHECK(diff.n_equal == 1);
  // With a tolerance the numbers alone count.
  diff = diff_checkpoints(a, b, {.tolerance = 0.004, .progress = nullptr});
  CHECK(diff.tensors.size() == 3);
  CHECK(diff.n_within == 2);
}

TEST_CASE("the tolerance is a share of the tensor's largest number, and NaN is never within") {
  const ScratchDir dir;
  const fs::path a = saves::tensors(dir / "a", 1, {saves::values<float>("t", DType::f32, {3}, {8, 1, 0})});
  const fs::path b = saves::tensors(dir / "b", 1, {saves::values<float>("t", DType::f32, {3}, {8, 1, 2})});
  const fs::path c = saves::tensors(dir / "c", 1, {saves::values<float>("t", DType::f32, {3}, {8, 1, NAN})});
  CHECK(diff_checkpoints(a, b, {.tolerance = 0.25, .progress = nullptr}).n_within == 1);
  CHECK(diff_checkpoints(a, b, {.tolerance = 0.2499, .progress = nullptr}).tensors.size() == 1);
  CHECK(diff_checkpoints(a, c, {.tolerance = 1e9, .progress = nullptr}).tensors.size() == 1);
}

TEST_CASE("a difference that is damage is called damage") {
  const ScratchDir dir;
  const fs::path a = saves::made_up(dir / "a", 7, 2, 1, 3), b = saves::made_up(dir / "b", 7, 3, 2, 3);
  const Checkpoint before(b);
  const StoredPiece piece = before.pieces("large").front();
  const int64_t bytes = piece.box.size() * 4;
  REQUIRE(bytes > 0);
  saves::flip(b / piece.file, piece.at + bytes / 2);
  const CheckpointDiff diff = diff_checkpoints(a, b, {});
  REQUIRE(diff.tensors.size() == 1);
  CHECK(diff.tensors[0].name == "large");
  CHECK(diff.tensors[0].comparison.n_different == 1);
  REQUIRE(diff.tensors[0].damage.size() == 1);
  CHECK(saves::has(diff.tensors[0].damage[0], (b / piece.file).string()));
  CHECK(saves::has(diff.tensors[0].damage[0], box_text(piece.box)));
  // Where the saves really differ, nothing is damaged.
  const fs::path c = saves::made_up(dir / "c", 7, 2, 1, 4);
  for (const TensorDifference& d : diff_checkpoints(a, c, {}).tensors) CHECK(d.damage.empty());
}

TEST_CASE("keys of identity, layout, hyper-parameters and state") {
  const ScratchDir dir;
  const Json a = {{"run_id", "a"},
                  {"layout", {{"tp", 1}, {"text", "tp 1"}}},
                  {"config", {{"lr", 0.001}, {"seed", 3}, {"old", true}}},
                  {"model_config", {{"hidden_size", 8}}},
                  {"tokenizer_json", std::string(5000, 'x')}};
  Json b = a;
  b["run_id"] = "b", b["layout"]["tp"] = 2, b["config"]["lr"] = 0.002, b["config"].erase("old");
  b["config"]["new"] = {1, 2}, b["tokenizer_json"] = std::string(5001, 'x'), b["empty"] = Json::object();
  const fs::path in_a = saves::made_up(dir / "a", 1, 1, 1, 1, {a, {{"step", 1}, {"guard", {{"losses", {1.5}}}}}});
  const fs::path in_b = saves::made_up(dir / "b", 1, 1, 1, 1, {b, {{"step", 2}, {"guard", {{"losses", {1.5}}}}}});
  const CheckpointDiff diff = diff_checkpoints(in_a, in_b, {});
  CHECK(diff.identity.size() == 3);
  REQUIRE(find(diff.identity, "run_id") != nullptr);
  CHECK(find(diff.identity, "run_id")->a == "\"a\"");
  REQUIRE(find(diff.identity, "tokenizer_json") != nullptr);
  CHECK(find(diff.identity, "tokenizer_json")->a.size() < 80);
  CHECK(find(diff.identity, "tokenizer_json")->a != find(diff.identity, "tokenizer_json")->b);
  REQUIRE(diff.layout.size() == 1);
  CHECK(diff.layout[0].key == "tp");
  CHECK(diff.hyper_parameters.size() == 3);
  CHECK(find(diff.hyper_parameters, "old")->b.empty());
  CHECK(find(diff.hyper_parameters, "new")->a.empty());
  CHECK(find(diff.hyper_parameters, "new")->b == "[1,2]");
  REQUIRE(diff.state.size() == 1);
  CHECK(diff.state[0].key == "step");
  CHECK(diff.tensors.empty());
}
