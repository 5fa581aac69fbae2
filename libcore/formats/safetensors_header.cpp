#include "libcore/formats/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"
#include "libcore/tensor/elements.h"

namespace rw {

namespace {

// Sorted keys: an ordered object finds a key by walking, which a header of 100,000 tensors would feel.
using Header = nlohmann::json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int kMaxDepth = 8;                      // a tensor's offsets are at depth 3

struct KnownDtype {
  const char* name;
  DType dtype;
  bool readable;
};
constexpr KnownDtype kDtypes[] = {
    {"F64", DType::f64, true},     {"F32", DType::f32, true},     {"F16", DType::f16, true},
    {"BF16", DType::bf16, true},   {"I64", DType::i64, true},     {"I32", DType::i32, false},
    {"I16", DType::u16, false},    {"I8", DType::u8, false},      {"U64", DType::i64, false},
    {"U32", DType::i32, false},    {"U16", DType::u16, false},    {"U8", DType::u8, false},
    {"BOOL", DType::u8, false},    {"C64", DType::f64, false},    {"F8_E4M3", DType::u8, false},
    {"F8_E5M2", DType::u8, false}, {"F8_E8M0", DType::u8, false},
};

const KnownDtype* find_dtype(const std::string& name) {
  for (const KnownDtype& known : kDtypes) {
    if (name == known.name) return &known;
  }
  return nullptr;
}

std::string clip(std::string text) { return text.size() > 80 ? text.substr(0, 77) + "..." : text; }
std::string dump(const Header& j) { return clip(j.dump(-1, ' ', false, Header::error_handler_t::replace)); }

int64_t header_bytes(std::string_view bytes, int64_t file_bytes, const std::string& where) {
  if (bytes.size() < 8 || file_bytes < 8) {
    fail(ErrorKind::input, "{}: expected a safetensors file of at least 8 bytes, found {}", where, file_bytes);
  }
  uint64_t n;
  std::memcpy(&n, bytes.data(), sizeof n);
  const uint64_t most = static_cast<uint64_t>(std::min(file_bytes - 8, kMaxHeaderBytes));
  if (n > most || n > bytes.size() - 8) {
    fail(ErrorKind::input,
         "{}: expected a header of at most {} bytes, found a length of {}: cut, or no safetensors file", where, most,
         n);
  }
  return static_cast<int64_t>(n);
}

Header parse(std::string_view text, const std::string& where) {
  if (text.empty() || text[0] != '{') fail(ErrorKind::input, "{}: expected the header to begin with '{{'", where);
  std::set<std::string> names;
  const Header::parser_callback_t check = [&](int depth, Header::parse_event_t event, Header& value) {
    if (depth > kMaxDepth) fail(ErrorKind::input, "{}: the header is nested deeper than {} levels", where, kMaxDepth);
    if (depth == 1 && event == Header::parse_event_t::key && !names.insert(value.get<std::string>()).second) {
      fail(ErrorKind::input, "{}: tensor {} is in the header twice", where, dump(value));
    }
    return true;
  };
  try {
    return Header::parse(text, check);
  } catch (const Header::exception& e) {
    fail(ErrorKind::input, "{}: expected a JSON header; {}", where, clip(e.what()));
  }
}

// The array under `key`: whole numbers >= 0 that fit 63 bits.
Shape whole_numbers(const Header& tensor, const char* key, const std::string& at) {
  const auto list = tensor.find(key);
  if (list == tensor.end() || !list->is_array()) {
    fail(ErrorKind::input, "{}: key '{}': expected an array, found {}", at, key,
         list == tensor.end() ? "none" : dump(*list));
  }
  Shape numbers;
  for (const Header& n : *list) {
    if (!n.is_number_unsigned() || n.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      fail(ErrorKind::input, "{}: key '{}': expected whole numbers of at least 0, found {}", at, key, dump(n));
    }
    numbers.push_back(n.get<int64_t>());
  }
  return numbers;
}

SafetensorsEntry parse_entry(const std::string& name, const Header& tensor, int64_t data_bytes,
                             const std::string& where) {
  const std::string at = where + ": tensor " + clip(name);
  if (!tensor.is_object()) fail(ErrorKind::input, "{}: expected an object, found {}", at, dump(tensor));
  const auto dtype = tensor.find("dtype");
  if (dtype == tensor.end() || !dtype->is_string()) {
    fail(ErrorKind::input, "{}: key 'dtype': expected a string, found {}", at,
         dtype == tensor.end() ? "none" : dump(*dtype));
  }
  SafetensorsEntry entry;
  entry.file_dtype = dtype->get<std::string>();
  const KnownDtype* known = find_dtype(entry.file_dtype);
  entry.readable = known != nullptr && known->readable;
  entry.info = {name, known != nullptr ? known->dtype : DType::u8, whole_numbers(tensor, "shape", at)};
  const Shape range = whole_numbers(tensor, "data_offsets", at);
  if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes) {
    fail(ErrorKind::input, "{}: key 'data_offsets': expected [begin, end] with begin <= end <= {}, found {}", at,
         data_bytes, shape_text(range));
  }
  entry.begin = range[0];
  entry.end = range[1];
  const int64_t bytes = checked_bytes(entry.info.shape, entry.info.dtype);
  if (bytes < 0 || (known != nullptr && bytes != entry.end - entry.begin)) {
    fail(ErrorKind::input, "{}: shape {} in {}: expected {} bytes, found {} (data_offsets {})", at,
         shape_text(entry.info.shape), entry.file_dtype, bytes < 0 ? "fewer than 2^63" : std::to_string(bytes),
         entry.end - entry.begin, shape_text(range));
  }
  return entry;
}

// The format allows neither overlaps nor holes: a byte that no tensor owns is a sign of a damaged header.
void check_ranges(const std::vector<SafetensorsEntry>& entries, int64_t data_bytes, const std::string& where) {
  std::vector<const SafetensorsEntry*> order;
  for (const SafetensorsEntry& e : entries) order.push_back(&e);
  std::sort(order.begin(), order.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t at = 0;
  for (const SafetensorsEntry* e : order) {
    if (e->begin != at) {
      fail(ErrorKind::input, "{}: tensor {}: key 'data_offsets': expected to begin at {}, found {}: the data {}", where,
           clip(e->info.name), at, e->begin, e->begin < at ? "overlap" : "have a hole");
    }
    at = e->end;
  }
  if (at != data_bytes) {
    fail(ErrorKind::input, "{}: expected {} bytes of data after the header, found {}", where, at, data_bytes);
  }
}

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view bytes, int64_t file_bytes,
                                                       const std::string& where) {
  const int64_t length = header_bytes(bytes, file_bytes, where);
  const Header header = parse(bytes.substr(8, static_cast<size_t>(length)), where);
  const int64_t data_start = 8 + length, data_bytes = file_bytes - data_start;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : header.items()) {
    if (name != "__metadata__") entries.push_back(parse_entry(name, tensor, data_bytes, where));
  }
  check_ranges(entries, data_bytes, where);
  for (SafetensorsEntry& e : entries) e.begin += data_start, e.end += data_start;
  return entries;
}

}  // namespace rw
