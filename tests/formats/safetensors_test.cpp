#include "libcore/formats/safetensors.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/json.h"
#include "libcore/formats/safetensors_header.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

fs::path golden() { return fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "tests/golden/safetensors"; }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<float> read_all(const TensorSource& source, const std::string& name) {
  const TensorInfo* info = source.find(name);
  REQUIRE(info != nullptr);
  std::vector<float> values(static_cast<size_t>(n_elements(info->shape)));
  source.read(name, whole(info->shape), DType::f32, values.data());
  return values;
}

std::string file_of(const std::string& header, int64_t data_bytes) {
  std::string text(8, '\0');
  const uint64_t n = header.size();
  std::memcpy(text.data(), &n, 8);
  return text + header + std::string(static_cast<size_t>(data_bytes), 'd');
}

std::string header_error(const std::string& file) {
  try {
    parse_safetensors_header(file, static_cast<int64_t>(file.size()), "x.safetensors");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    CHECK(has(e.what(), "x.safetensors: "));
    return e.what();
  }
  return "";
}

std::string open_error(const fs::path& path) {
  try {
    open_safetensors(path);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "";
}

ExportTensor tensor(const std::string& name, DType t, const Shape& shape, float first) {
  return {name, t, shape, [=](const Box& rows, void* dst) {
            const int64_t n = rows.size();
            const int64_t before = shape.empty() || shape[0] == 0 ? 0 : rows.offset[0] * (n_elements(shape) / shape[0]);
            for (int64_t i = 0; i < n; ++i) {
              const float x = first + static_cast<float>(before + i);  // whole and small: exact in every dtype
              if (t == DType::f32) std::memcpy(static_cast<char*>(dst) + 4 * i, &x, 4);
              uint32_t bits;
              std::memcpy(&bits, &x, 4);
              const uint16_t h =
                  t == DType::bf16
                      ? static_cast<uint16_t>(bits >> 16)
                      : static_cast<uint16_t>(x == 0 ? 0 : (((bits >> 23) - 112) << 10) | ((bits >> 13) & 1023));
              if (t != DType::f32) std::memcpy(static_cast<char*>(dst) + 2 * i, &h, 2);
            }
          }};
}

}  // namespace

TEST_CASE("a file of the Python package reads as the values it was made from") {
  const auto source = open_safetensors(golden() / "mixed.safetensors");
  const Json values = read_json(golden() / "mixed.json");
  REQUIRE(source->tensors().size() == values.size());
  for (const auto& [name, expected] : values.items()) {
    const TensorInfo* info = source->find(name);
    REQUIRE(info != nullptr);
    CHECK(Json(info->shape) == expected["shape"]);
    if (name == "mask") continue;
    const std::vector<float> found = read_all(*source, name);
    REQUIRE(found.size() == expected["values"].size());
    for (size_t i = 0; i < found.size(); ++i) {
      const float x = std::strtof(expected["values"][i].get<std::string>().c_str(), nullptr);
      CHECK(found[i] == x);
      CHECK(std::signbit(found[i]) == std::signbit(x));
    }
  }
  float part[6];
  source->read("f64", {{1, 0, 2}, {1, 3, 2}}, DType::f32, part);
  const std::vector<float> all = read_all(*source, "f64");
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 2; ++c) CHECK(part[r * 2 + c] == all[static_cast<size_t>(12 + r * 4 + 2 + c)]);
  }
  std::string error;
  try {
    source->read("mask", whole({3}), DType::u8, part);
  } catch (const Error& e) {
    error = e.what();
  }
  CHECK(has(error, "tensor mask: expected F32, F16, BF16, F64 or I64, found BOOL"));
}

TEST_CASE("a sharded directory reads like one file, by directory and by index") {
  const auto mixed = open_safetensors(golden() / "mixed.safetensors");
  for (const fs::path& path : {golden() / "sharded", golden() / "sharded/model.safetensors.index.json"}) {
    CHECK(holds_safetensors(path));
    const auto source = open_safetensors(path);
    REQUIRE(source->tensors().size() == 3);
    CHECK(read_all(*source, "a.weight") == read_all(*mixed, "f32"));
    CHECK(read_all(*source, "b.bias") == read_all(*mixed, "bf16"));
    CHECK(read_all(*source, "c.weight") == read_all(*mixed, "f16"));
  }
}

TEST_CASE("written files read back, single and sharded, and replace an earlier export") {
  const ScratchDir dir;
  const std::vector<ExportTensor> tensors = {
      tensor("b", DType::f32, {3, 7}, 1), tensor("a", DType::bf16, {13}, 2), tensor("c", DType::f16, {1, 1, 5}, 0),
      tensor("empty", DType::f32, {0, 2}, 0), tensor("scalar", DType::f32, {}, 9)};
  const auto check = [&] {
    const auto source = open_safetensors(dir.path());
    REQUIRE(source->tensors().size() == tensors.size());
    for (const ExportTensor& t : tensors) {
      CHECK(source->find(t.name)->dtype == t.dtype);
      CHECK(source->find(t.name)->shape == t.shape);
      const std::vector<float> found = read_all(*source, t.name);
      const float first = t.name == "b" ? 1 : t.name == "a" ? 2 : t.name == "scalar" ? 9 : 0;
      for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == first + static_cast<float>(i));
    }
  };
  const std::vector<WrittenFile> one = write_safetensors(dir.path(), tensors, {});
  REQUIRE(one.size() == 1);
  CHECK(one[0].name == "model.safetensors");
  const std::string text = read_file(dir / "model.safetensors");
  CHECK(one[0].bytes == static_cast<int64_t>(text.size()));
  CHECK(one[0].digest == hash64(text));
  CHECK(fs::exists(dir / "model.safetensors"));
  check();
  CHECK(write_safetensors(dir.path(), tensors, {.max_shard_bytes = 39, .memory_bytes = 1}).size() == 4);
  CHECK_FALSE(fs::exists(dir / "model.safetensors"));
  CHECK(fs::exists(dir / "model-00001-of-00003.safetensors"));
  check();
  const Json index = read_json(dir / "model.safetensors.index.json");
  CHECK(index["metadata"]["total_size"] == 21 * 4 + 13 * 2 + 5 * 2 + 4);
  CHECK(index["weight_map"]["a"] == "model-00002-of-00003.safetensors");
  // By bands of two rows of the largest: the same bytes.
  write_safetensors(dir.path(), tensors, {.memory_bytes = 2 * 7 * 20});
  CHECK(read_file(dir / "model.safetensors") == text);
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
  check();
}

TEST_CASE("a failing export leaves no part of itself") {
  const ScratchDir dir;
  std::vector<ExportTensor> tensors = {tensor("a", DType::f32, {64}, 1), tensor("b", DType::f32, {64}, 1)};
  tensors[1].read = [](const Box&, void*) { fail(ErrorKind::input, "no such luck"); };
  CHECK_THROWS_AS(write_safetensors(dir.path(), tensors, {.max_shard_bytes = 300}), Error);
  CHECK(fs::is_empty(dir.path()));
  CHECK_THROWS_AS(write_safetensors(dir / "missing", {tensor("a", DType::f32, {64}, 1)}, {.max_shard_bytes = 300}),
                  Error);
}

TEST_CASE("headers that lie") {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"w\": {\"dtype\": " + dtype + ", \"shape\": " + shape + ", \"data_offsets\": " + offsets + "}}";
  };
  CHECK(header_error(file_of(one("\"F32\"", "[2, 3]", "[0, 24]"), 24)).empty());
  CHECK(header_error(file_of(one("\"F32\"", "[2, 3]", "[0, 24]") + "    ", 24)).empty());
  CHECK(header_error(file_of(one("\"WHAT\"", "[2, 3]", "[0, 24]"), 24)).empty());  // listed, not readable
  CHECK(header_error(file_of("{}", 0)).empty());

  CHECK(has(header_error(""), "at least 8 bytes, found 0"));
  CHECK(has(header_error(std::string(8, '\xff')), "found a length of 18446744073709551615"));
  CHECK(has(header_error(file_of("{}", 0).substr(0, 9)), "at most 1 bytes, found a length of 2"));
  CHECK(has(header_error(file_of("  {}", 0)), "begin with '{'"));
  CHECK(has(header_error(file_of("{\"w\": ", 0)), "expected a JSON header"));
  CHECK(has(header_error(file_of("{\"w\": 3}", 0)), "tensor w: expected an object, found 3"));
  CHECK(has(header_error(file_of("{" + std::string(50, '['), 0)), "JSON"));
  CHECK(has(header_error(file_of("{\"w\": " + std::string(50, '[') + std::string(50, ']') + "}", 0)), "nested"));
  CHECK(has(header_error(file_of(one("7", "[2]", "[0, 8]"), 8)), "key 'dtype': expected a string, found 7"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[-2]", "[0, 8]"), 8)), "key 'shape': expected whole numbers"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[2.0]", "[0, 8]"), 8)), "found 2.0"));
  CHECK(has(header_error(file_of(one("\"F32\"", "{}", "[0, 8]"), 8)), "key 'shape': expected an array, found {}"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[2]", "[0, 9]"), 9)), "shape (2) in F32: expected 8 bytes, found 9"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[2]", "[8, 0]"), 8)), "begin <= end <= 8, found (8, 0)"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[2]", "[0, 8]"), 7)), "begin <= end <= 7, found (0, 8)"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[2]", "[0]"), 8)), "expected [begin, end]"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[2]", "[0, 8]"), 11)),
            "expected 8 bytes of data after the header, found 11"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[2]", "[4, 12]"), 12)),
            "expected to begin at 0, found 4: the data have a hole"));
  CHECK(has(header_error(file_of(one("\"F32\"", "[4611686018427387904, 4]", "[0, 0]"), 0)), "fewer than 2^63"));
  const std::string a = "\"a\": {\"dtype\": \"U8\", \"shape\": [8], \"data_offsets\": [0, 8]}";
  const std::string b = "\"b\": {\"dtype\": \"U8\", \"shape\": [8], \"data_offsets\": [4, 12]}";
  CHECK(has(header_error(file_of("{" + a + ", " + b + "}", 12)),
            "tensor b: key 'data_offsets': expected to begin at 8, found 4: the data overlap"));
  CHECK(has(header_error(file_of("{" + a + ", " + a + "}", 8)), "tensor \"a\" is in the header twice"));
}

TEST_CASE("files and directories that are not what they should be") {
  const ScratchDir dir;
  CHECK(has(open_error(dir.path()), "expected model.safetensors or model.safetensors.index.json, found 0 files"));
  CHECK_FALSE(holds_safetensors(dir.path()));
  CHECK(has(open_error(dir / "none.safetensors"), "none.safetensors"));
  std::ofstream(dir / "model.safetensors.index.json") << R"({"weight_map": {"a": "../other.safetensors"}})";
  CHECK(has(open_error(dir.path()), "tensor a: expected a file name in the same directory"));
  std::ofstream(dir / "model.safetensors.index.json") << R"({"weights": {}})";
  CHECK(has(open_error(dir.path()), "key 'weight_map'"));
  std::ofstream(dir / "model.safetensors.index.json")
      << R"({"weight_map": {"a": "x.safetensors", "zz": "x.safetensors"}})";
  CHECK(has(open_error(dir.path()), "x.safetensors: cannot be opened"));
  std::ofstream(dir / "x.safetensors") << file_of(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1);
  CHECK(has(open_error(dir.path()),
            "x.safetensors: expected tensor zz, which model.safetensors.index.json assigns to it"));
  fs::remove(dir / "model.safetensors.index.json");
  CHECK(open_error(dir.path()).empty());  // the only file of its kind
}
