#include "libcore/ckpt/manifest.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/json.h"
#include "libcore/tensor/elements.h"

namespace rw {

namespace {

constexpr const char* kFormat = "rankwright-checkpoint";
constexpr int64_t kVersion = 1;
constexpr std::string_view kDigestKey = "\"digest\": \"";
constexpr std::string_view kDigestEnd = "\"\n}\n";
constexpr size_t kTailBytes = kDigestKey.size() + 16 + kDigestEnd.size();

std::string digest_tail(uint64_t digest) { return std::string(kDigestKey) + hex64(digest) + std::string(kDigestEnd); }

Json piece_json(const PieceRecord& p) {
  return {
      {"file", p.file}, {"at", p.at}, {"offset", p.box.offset}, {"extent", p.box.extent}, {"digest", hex64(p.digest)}};
}

// One line a piece: a manifest can be read, grepped and compared by people.
std::string tensor_text(const TensorRecord& t) {
  std::string text = "{\"name\": " + Json(t.info.name).dump() + ", \"dtype\": \"" + dtype_name(t.info.dtype) +
                     "\", \"shape\": " + Json(t.info.shape).dump() + ", \"pieces\": [";
  for (size_t i = 0; i < t.pieces.size(); ++i) text += (i == 0 ? "\n  " : ",\n  ") + piece_json(t.pieces[i]).dump();
  return text + "]}";
}

std::string file_text(const FileRecord& f) {
  return Json{{"name", f.name}, {"bytes", f.bytes}, {"rest_digest", hex64(f.rest_digest)}}.dump();
}

template <typename T, typename F>
std::string list_text(const std::vector<T>& items, F text_of) {
  std::string text = "[";
  for (size_t i = 0; i < items.size(); ++i) text += (i == 0 ? "\n" : ",\n") + text_of(items[i]);
  return text + "]";
}

const Json& member(const Json& object, const char* key, Json::value_t type, const std::string& where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) fail(ErrorKind::input, "{}: key '{}' is missing", where, key);
  if (found->type() != type) {
    fail(ErrorKind::input, "{}: key '{}': expected {}, found {}", where, key, Json(type).type_name(),
         found->type_name());
  }
  return *found;
}

Shape parse_shape(const Json& object, const char* key, const std::string& where) {
  Shape shape;
  for (const Json& extent : member(object, key, Json::value_t::array, where)) {
    if (!extent.is_number_integer() || extent.get<int64_t>() < 0) {
      fail(ErrorKind::input, "{}: key '{}': expected whole numbers of at least 0, found {}", where, key, extent.dump());
    }
    shape.push_back(extent.get<int64_t>());
  }
  return shape;
}

FileRecord parse_file(const Json& j, const std::string& where) {
  FileRecord f;
  f.name = json_string(j, "name", where);
  if (f.name.empty() || f.name.find('/') != std::string::npos || f.name[0] == '.') {
    fail(ErrorKind::input, "{}: files: expected a plain file name, found '{}'", where, f.name);
  }
  f.bytes = json_int(j, "bytes", where);
  f.rest_digest = parse_hex64(json_string(j, "rest_digest", where));
  return f;
}

TensorRecord parse_tensor(const Json& j, const std::string& where) {
  TensorRecord t;
  t.info.name = json_string(j, "name", where);
  const std::string at = where + ": tensor " + t.info.name;
  const std::string dtype = json_string(j, "dtype", at);
  if (!dtype_from_name(dtype.c_str(), t.info.dtype)) {
    fail(ErrorKind::input, "{}: key 'dtype': expected f32, bf16, f16, f64, i64, i32, u16 or u8, found '{}'", at, dtype);
  }
  t.info.shape = parse_shape(j, "shape", at);
  if (checked_bytes(t.info.shape, t.info.dtype) < 0) {
    fail(ErrorKind::input, "{}: shape {} is larger than any file", at, shape_text(t.info.shape));
  }
  for (const Json& p : member(j, "pieces", Json::value_t::array, at)) {
    PieceRecord piece;
    piece.file = json_int(p, "file", at);
    piece.at = json_int(p, "at", at);
    piece.box.offset = parse_shape(p, "offset", at);
    piece.box.extent = parse_shape(p, "extent", at);
    piece.digest = parse_hex64(json_string(p, "digest", at));
    t.pieces.push_back(std::move(piece));
  }
  return t;
}

// The overlap of two pieces, if any: sorted by their first offset, a piece is compared only with those that begin
// before it ends, so row shards of many ranks cost one comparison each.
std::string overlap_fault(const TensorRecord& t) {
  std::vector<const PieceRecord*> order;
  for (const PieceRecord& p : t.pieces) order.push_back(&p);
  if (t.info.shape.empty()) return order.size() > 1 ? "is written more than once" : "";
  std::sort(order.begin(), order.end(),
            [](const PieceRecord* a, const PieceRecord* b) { return a->box.offset < b->box.offset; });
  for (size_t i = 0; i < order.size(); ++i) {
    const Box& a = order[i]->box;
    for (size_t k = i + 1; k < order.size() && order[k]->box.offset[0] < a.offset[0] + a.extent[0]; ++k) {
      const Box both = intersect(a, order[k]->box);
      if (both.size() > 0) return fmt::format("box {} is written more than once", box_text(both));
    }
  }
  return "";
}

}  // namespace

std::string layout_fault(const TensorRecord& tensor, const std::vector<FileRecord>& files) {
  int64_t covered = 0;
  for (const PieceRecord& p : tensor.pieces) {
    const size_t rank = tensor.info.shape.size();
    if (p.box.offset.size() != rank || p.box.extent.size() != rank || !contains(tensor.info.shape, p.box)) {
      return fmt::format("box {} lies outside the shape {}", box_text(p.box), shape_text(tensor.info.shape));
    }
    if (p.file < 0 || p.file >= static_cast<int64_t>(files.size())) {
      return fmt::format("box {}: file number {} of {}", box_text(p.box), p.file, files.size());
    }
    const FileRecord& file = files[static_cast<size_t>(p.file)];
    const int64_t bytes = p.box.size() * dtype_bytes(tensor.info.dtype);
    if (p.at < 0 || bytes > file.bytes || p.at > file.bytes - bytes) {
      return fmt::format("box {}: expected {} bytes at offset {} of {}, which has {} bytes", box_text(p.box), bytes,
                         p.at, file.name, file.bytes);
    }
    covered += p.box.size();
  }
  const std::string overlap = overlap_fault(tensor);
  if (!overlap.empty()) return overlap;
  const int64_t expected = n_elements(tensor.info.shape);
  if (covered == expected) return "";
  return fmt::format("shape {}: expected boxes over all {} elements, found {} covered", shape_text(tensor.info.shape),
                     expected, covered);
}

namespace {

// Two pieces that claim the same bytes of a file; "" when there are none.
std::string sharing_fault(const Manifest& m) {
  struct Claim {
    int64_t file, begin, end;
    const std::string* tensor;
  };
  std::vector<Claim> claims;
  for (const TensorRecord& t : m.tensors)
    for (const PieceRecord& p : t.pieces)
      claims.push_back({p.file, p.at, p.at + p.box.size() * dtype_bytes(t.info.dtype), &t.info.name});
  std::sort(claims.begin(), claims.end(),
            [](const Claim& a, const Claim& b) { return std::pair(a.file, a.begin) < std::pair(b.file, b.begin); });
  for (size_t i = 1; i < claims.size(); ++i)
    if (claims[i].file == claims[i - 1].file && claims[i].begin < claims[i - 1].end)
      return fmt::format("tensors {} and {} claim the same bytes of {} at {}", *claims[i - 1].tensor, *claims[i].tensor,
                         m.files[static_cast<size_t>(claims[i].file)].name, claims[i].begin);
  return "";
}

}  // namespace

Manifest join_shards(const std::vector<ShardRecord>& shards) {
  Manifest m;
  std::map<std::string, TensorRecord> by_name;
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    m.files.push_back(shards[rank].file);
    for (const TensorRecord& t : shards[rank].tensors) {
      TensorRecord& joined = by_name.try_emplace(t.info.name, TensorRecord{t.info, {}}).first->second;
      if (joined.info.dtype != t.info.dtype || joined.info.shape != t.info.shape) {
        fail(ErrorKind::runtime, "tensor {}: rank {} wrote {} {}, an earlier rank {} {}", t.info.name, rank,
             dtype_name(t.info.dtype), shape_text(t.info.shape), dtype_name(joined.info.dtype),
             shape_text(joined.info.shape));
      }
      for (PieceRecord piece : t.pieces) {
        piece.file = static_cast<int64_t>(rank);
        joined.pieces.push_back(std::move(piece));
      }
    }
  }
  for (auto& [name, tensor] : by_name) {
    const std::string fault = layout_fault(tensor, m.files);
    if (!fault.empty()) fail(ErrorKind::runtime, "tensor {}: {}", name, fault);
    m.tensors.push_back(std::move(tensor));
  }
  return m;
}

std::string manifest_text(const Manifest& m) {
  std::string text = "{\n\"format\": \"" + std::string(kFormat) + "\",\n\"version\": " + std::to_string(kVersion) +
                     ",\n\"step\": " + std::to_string(m.step) + ",\n\"created\": " + Json(m.created).dump() +
                     ",\n\"identity\": " + m.identity + ",\n\"state\": " + m.state +
                     ",\n\"files\": " + list_text(m.files, file_text) +
                     ",\n\"tensors\": " + list_text(m.tensors, tensor_text) + ",\n";
  return text + digest_tail(hash64(text));
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  if (text.size() < kTailBytes || text.substr(text.size() - kTailBytes, kDigestKey.size()) != kDigestKey ||
      text.substr(text.size() - kDigestEnd.size()) != kDigestEnd) {
    fail(ErrorKind::input,
         "{}: expected a manifest that ends with its digest, found {} bytes without: it was cut or is none", where,
         text.size());
  }
  const std::string_view body = text.substr(0, text.size() - kTailBytes);
  const std::string found(text.substr(body.size() + kDigestKey.size(), 16));
  const std::string expected = hex64(hash64(body));
  if (found != expected) {
    fail(ErrorKind::input, "{}: key 'digest': expected {} for this content, found {}: the manifest was changed", where,
         expected, found);
  }
  const Json j = parse_json(text, where);
  const std::string format = json_string(j, "format", where);
  if (format != kFormat) fail(ErrorKind::input, "{}: key 'format': expected {}, found {}", where, kFormat, format);
  const int64_t version = json_int(j, "version", where);
  if (version != kVersion) {
    fail(ErrorKind::input, "{}: key 'version': expected {}, found {}: read it with the version that wrote it", where,
         kVersion, version);
  }
  Manifest m;
  m.step = json_int(j, "step", where);
  if (m.step < 0) fail(ErrorKind::input, "{}: key 'step': expected at least 0, found {}", where, m.step);
  m.created = json_string(j, "created", where);
  m.identity = member(j, "identity", Json::value_t::object, where).dump();
  m.state = member(j, "state", Json::value_t::object, where).dump();
  for (const Json& f : member(j, "files", Json::value_t::array, where)) m.files.push_back(parse_file(f, where));
  for (const Json& t : member(j, "tensors", Json::value_t::array, where)) m.tensors.push_back(parse_tensor(t, where));
  for (size_t i = 0; i < m.tensors.size(); ++i) {
    const TensorRecord& t = m.tensors[i];
    if (i > 0 && m.tensors[i - 1].info.name >= t.info.name) {
      fail(ErrorKind::input, "{}: key 'tensors': expected names in ascending order, found {} after {}", where,
           t.info.name, m.tensors[i - 1].info.name);
    }
    const std::string fault = layout_fault(t, m.files);
    if (!fault.empty()) fail(ErrorKind::input, "{}: tensor {}: {}", where, t.info.name, fault);
  }
  if (const std::string fault = sharing_fault(m); !fault.empty()) fail(ErrorKind::input, "{}: {}", where, fault);
  return m;
}

std::string shard_text(const ShardRecord& shard) {
  return "{\"file\": " + file_text(shard.file) + ", \"tensors\": " + list_text(shard.tensors, tensor_text) + "}";
}

ShardRecord parse_shard(std::string_view text, const std::string& where) {
  const Json j = parse_json(text, where);
  ShardRecord shard;
  shard.file = parse_file(member(j, "file", Json::value_t::object, where), where);
  for (const Json& t : member(j, "tensors", Json::value_t::array, where))
    shard.tensors.push_back(parse_tensor(t, where));
  return shard;
}

}  // namespace rw
