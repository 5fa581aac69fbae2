// rankwright.json: what an exported directory is, where it comes from, and digests of its files.
//
//   {"format": "rankwright-export", "version": 1, "tool_version": "...", "created": "...", "dtype": "bf16",
//    "run_id": "...", "step": 400, "loss": 2.31, "model_identity": "...", "params": 6291456,
//    "dataset_fingerprint": "...", "layout": {...}, "global_batch": 32, "precision": "bf16",
//    "hyper_parameter_hash": "...", "source": "/.../checkpoints/step-00000400",
//    "files": [{"name": "model.safetensors", "bytes": ..., "digest": "<16 hex>"}, ...]}
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/formats/model_source.h"
#include "libcore/formats/safetensors.h"

namespace rw {

constexpr const char* kArtifactName = "rankwright.json";

// Keys that the source does not know are null.
Json artifact_identity(const ModelSource& model, const std::string& dtype, const std::vector<WrittenFile>& files);

// The name of an export when none is given: family and size, the first letters of the run id, step, dtype:
// "llama-6m-ab12cd34-step400-bf16"; what is not known is left out.
std::string artifact_name(const ModelSource& model, const std::string& dtype);

enum class ArtifactPart { weights, optimizer };
// Reads the safetensors files of that part of a directory and compares them with its rankwright.json. False when it has
// none; Error{verdict} names the file, what was expected and what was found.
bool check_artifact(const std::filesystem::path& dir, ArtifactPart part);

}  // namespace rw
