#include "libcore/formats/diff.h"

#include <atomic>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/base/workers.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/formats/hf_identity.h"
#include "libcore/formats/model_source.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr size_t kLongText = 1000;  // a tokenizer's text is told as its digest

struct Side {
  DiffSide shown;
  std::unique_ptr<TensorSource> tensors;
  Json identity = Json::object(), state = Json::object();
  const Manifest* manifest = nullptr;  // of a checkpoint
};

Side open_side(const fs::path& path) {
  Side side;
  if (path_kind(path) == PathKind::huggingface) {
    try {
      check_artifact(path, ArtifactPart::weights);
    } catch (const Error& e) {
      log_warning("{}", e.what());  // what differs is still of interest
    }
    ModelSource model = open_huggingface(path);
    side.shown.dir = path;
    std::error_code error;
    if (fs::exists(path / "rankwright.json", error)) side.identity = read_json(path / "rankwright.json");
    side.identity["model_config"] = parse_json(model.config_json, (path / "config.json").string());
    side.tensors = std::move(model.weights);
    return side;
  }
  const fs::path dir = checkpoint_of(path);
  auto checkpoint = std::make_unique<Checkpoint>(dir);
  side.shown = {dir, checkpoint->step()};
  side.identity = checkpoint->identity();
  side.state = checkpoint->state();
  side.manifest = &checkpoint->manifest();
  side.tensors = std::move(checkpoint);
  return side;
}

using Flat = std::vector<std::pair<std::string, std::string>>;

void flatten(const Json& j, const std::string& prefix, Flat& flat) {
  if (j.is_object() && !j.empty()) {
    for (const auto& [key, value] : j.items()) flatten(value, prefix.empty() ? key : prefix + "." + key, flat);
    return;
  }
  std::string text = j.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (j.is_string() && text.size() > kLongText)
    text = Json(fmt::format("<{} bytes, digest {}>", text.size(), hex64(hash64(text)))).dump();
  flat.emplace_back(prefix, text);
}

std::vector<KeyDifference> key_differences(const Json& a, const Json& b) {
  Flat flat_a, flat_b;
  if (!a.empty()) flatten(a, "", flat_a);
  if (!b.empty()) flatten(b, "", flat_b);
  std::map<std::string, std::string> of_a(flat_a.begin(), flat_a.end()), of_b(flat_b.begin(), flat_b.end());
  std::vector<KeyDifference> list;
  for (const auto& [key, text] : flat_a) {
    const auto other = of_b.find(key);
    if (other == of_b.end()) list.push_back({key, text, ""});
    else if (other->second != text) list.push_back({key, text, other->second});
  }
  for (const auto& [key, text] : flat_b) {
    if (!of_a.contains(key)) list.push_back({key, "", text});
  }
  return list;
}

// Takes a member out of an identity, so that it can be compared under its own heading.
Json take(Json& identity, const char* key) {
  Json value = Json::object();
  if (const auto found = identity.find(key); found != identity.end() && found->is_object()) {
    value = *found;
    identity.erase(key);
  }
  return value;
}

// Pieces of a tensor that lost their digests.
void find_damage(const Side& side, const std::string& name, std::vector<std::string>& damage) {
  if (side.manifest == nullptr) return;
  for (const TensorRecord& tensor : side.manifest->tensors) {
    if (tensor.info.name != name) continue;
    for (const PieceRecord& piece : tensor.pieces) {
      const fs::path file = side.shown.dir / side.manifest->files[static_cast<size_t>(piece.file)].name;
      const MappedFile map(file);
      const int64_t bytes = piece.box.size() * dtype_bytes(tensor.info.dtype);
      const uint64_t found = hash64(map.data() + piece.at, bytes);
      if (found == piece.digest) continue;
      damage.push_back(fmt::format("{}: {} (bytes {} to {}): expected digest {}, found {}", file.string(),
                                   box_text(piece.box), piece.at, piece.at + bytes, hex64(piece.digest), hex64(found)));
    }
  }
}

bool is_optimizer(const std::string& name) { return name.find('/') != std::string::npos; }

int64_t bytes_of(const TensorInfo& t) { return n_elements(t.shape) * dtype_bytes(t.dtype); }

// A tensor of the one side that the other has not.
void add_missing(const Side& side, const Side& other, TensorDifference::Kind kind, CheckpointDiff& diff) {
  const bool weights_only = side.manifest == nullptr || other.manifest == nullptr;
  for (const TensorInfo& t : side.tensors->tensors()) {
    if (other.tensors->find(t.name) != nullptr) continue;
    if (weights_only && is_optimizer(t.name)) {
      ++diff.n_left_out;
      continue;
    }
    TensorDifference difference{.kind = kind, .name = t.name, .a = {}, .b = {}, .comparison = {}, .damage = {}};
    (kind == TensorDifference::Kind::only_in_a ? difference.a : difference.b) = t;
    diff.tensors.push_back(std::move(difference));
  }
}

// What both sides have.
void compare_common(const Side& a, const Side& b, const DiffOptions& options, CheckpointDiff& diff) {
  struct Pair {
    const TensorInfo *a, *b;
    TensorComparison found;
  };
  std::vector<Pair> pairs;
  int64_t total = 0;
  for (const TensorInfo& t : a.tensors->tensors()) {
    const TensorInfo* other = b.tensors->find(t.name);
    if (other == nullptr) continue;
    pairs.push_back({&t, other, {}});
    if (t.shape == other->shape) total += bytes_of(t) + bytes_of(*other);
  }
  std::atomic<int64_t> done = 0;
  const auto progress = [&](int64_t bytes) {
    const int64_t now = done += bytes;
    if (options.progress) options.progress(now, total);
  };
  run_jobs(pairs.size(), reading_threads(), [&](size_t i) {
    Pair& p = pairs[i];
    if (p.a->shape == p.b->shape) p.found = compare_tensor(*a.tensors, *b.tensors, p.a->name, progress);
  });
  for (const auto& [in_a, in_b, found] : pairs) {
    TensorDifference difference{.kind = TensorDifference::Kind::values,
                                .name = in_a->name,
                                .a = *in_a,
                                .b = *in_b,
                                .comparison = found,
                                .damage = {}};
    if (in_a->shape != in_b->shape) {
      difference.kind = TensorDifference::Kind::shape;
    } else if (found.n_different == 0 && in_a->dtype == in_b->dtype) {
      ++diff.n_equal;
      continue;
    } else if (options.tolerance > 0 && found.n_unlike == 0 && found.relative() <= options.tolerance) {
      ++diff.n_within;
      continue;
    } else {
      if (found.n_different == 0) difference.kind = TensorDifference::Kind::dtype;
      find_damage(a, in_a->name, difference.damage);
      find_damage(b, in_b->name, difference.damage);
    }
    diff.tensors.push_back(std::move(difference));
  }
}

}  // namespace

CheckpointDiff diff_checkpoints(const fs::path& a_path, const fs::path& b_path, const DiffOptions& options) {
  Side a = open_side(a_path), b = open_side(b_path);
  CheckpointDiff diff;
  diff.a = a.shown, diff.b = b.shown;
  diff.layout = key_differences(take(a.identity, "layout"), take(b.identity, "layout"));
  diff.hyper_parameters = key_differences(take(a.identity, "config"), take(b.identity, "config"));
  diff.identity = key_differences(a.identity, b.identity);
  diff.state = key_differences(a.state, b.state);
  if (a.manifest == nullptr || b.manifest == nullptr) {  // what an export does not carry is no difference
    for (auto* list : {&diff.identity, &diff.layout, &diff.hyper_parameters, &diff.state})
      std::erase_if(*list, [](const KeyDifference& d) { return d.a.empty() || d.b.empty(); });
  }
  add_missing(a, b, TensorDifference::Kind::only_in_a, diff);
  add_missing(b, a, TensorDifference::Kind::only_in_b, diff);
  compare_common(a, b, options, diff);
  return diff;
}

}  // namespace rw
