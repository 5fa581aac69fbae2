#include "libcore/formats/hf_identity.h"

#include <fmt/format.h>

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/version.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/formats/hf_optimizer.h"
#include "libcore/spec/param_table.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFormat = "rankwright-export";

std::string size_text(int64_t params) {
  const double n = static_cast<double>(params);
  if (n < 1e6) return fmt::format("{:.0f}k", n / 1e3);
  if (n < 1e9) return fmt::format("{:.0f}m", n / 1e6);
  return n < 1e10 ? fmt::format("{:.1f}b", n / 1e9) : fmt::format("{:.0f}b", n / 1e9);
}

uint64_t digest_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(ErrorKind::input, "{}: cannot be opened", file.string());
  std::vector<char> part(size_t{1} << 20);
  StreamHash hash;
  while (in.read(part.data(), static_cast<std::streamsize>(part.size())) || in.gcount() > 0)
    hash.update(part.data(), in.gcount());
  if (in.bad()) fail(ErrorKind::runtime, "{}: reading it failed", file.string());
  return hash.digest();
}

}  // namespace

Json artifact_identity(const ModelSource& model, const std::string& dtype, const std::vector<WrittenFile>& files) {
  const Json identity = model.identity.empty() ? Json::object() : Json::parse(model.identity);
  const auto known = [&](const char* key) { return identity.contains(key) ? identity[key] : Json(); };
  Json loss;
  if (!model.checkpoint.empty()) {
    if (const ListedStep listed = list_step(model.checkpoint); listed.loss.has_value()) loss = listed.loss.value();
  }
  Json list = Json::array();
  for (const WrittenFile& f : files)
    list.push_back({{"name", f.name}, {"bytes", f.bytes}, {"digest", hex64(f.digest)}});
  const fs::path source = model.checkpoint.empty() ? fs::path(model.weights->where()) : model.checkpoint;
  return {{"format", kFormat},
          {"version", 1},
          {"tool_version", version()},
          {"created", utc_timestamp()},
          {"dtype", dtype},
          {"run_id", known("run_id")},
          {"step", model.step < 0 ? Json() : Json(model.step)},
          {"loss", loss},
          {"model_identity", model_identity(model.spec)},
          {"params", n_params(model.spec)},
          {"dataset_fingerprint", known("dataset_fingerprint")},
          {"layout", known("layout")},
          {"global_batch", known("global_batch")},
          {"precision", known("precision")},
          {"hyper_parameter_hash", known("hyper_parameter_hash")},
          {"source", fs::absolute(source).lexically_normal().string()},
          {"files", list}};
}

std::string artifact_name(const ModelSource& model, const std::string& dtype) {
  std::string name = fmt::format("{}-{}", family_name(model.spec.family), size_text(n_params(model.spec)));
  if (!model.identity.empty()) {
    std::string run = json_string(Json::parse(model.identity), "run_id", model.weights->where(), "").substr(0, 8);
    std::erase_if(run, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-'; });
    if (!run.empty()) name += "-" + run;
  }
  if (model.step >= 0) name += fmt::format("-step{}", model.step);
  return name + "-" + dtype;
}

bool check_artifact(const fs::path& dir, ArtifactPart part) {
  const fs::path file = dir / kArtifactName;
  if (!fs::exists(file)) return false;
  const std::string where = file.string();
  Json artifact;
  try {
    artifact = parse_json(read_regular_file(file), where);
  } catch (const Error& e) {
    fail(ErrorKind::verdict, "damaged: {}", e.what());
  }
  const auto files = artifact.is_object() ? artifact.find("files") : artifact.end();
  if (files == artifact.end() || !files->is_array())
    fail(ErrorKind::verdict, "{}: key 'files': expected a list of files", where);
  for (const Json& entry : *files) {
    const std::string name = json_string(entry, "name", where), expected = json_string(entry, "digest", where);
    if (name.empty() || name.find('/') != std::string::npos || name[0] == '.')
      fail(ErrorKind::input, "{}: files: expected a plain file name, found '{}'", where, name);
    if (!name.ends_with(".safetensors")) continue;
    if (name.starts_with(kOptimizerStem) != (part == ArtifactPart::optimizer)) continue;
    if (std::error_code error; !fs::is_regular_file(dir / name, error))
      fail(ErrorKind::verdict, "{}: expected a file of digest {} ({}), found none", (dir / name).string(), expected,
           kArtifactName);
    const std::string found = hex64(digest_of(dir / name));
    if (found != expected)
      fail(ErrorKind::verdict,
           "{}: is not what was exported: expected digest {} ({}), found {}; if it was changed on purpose, remove {}",
           (dir / name).string(), expected, kArtifactName, found, kArtifactName);
  }
  return true;
}

}  // namespace rw
