#include "libcore/api/json_text.h"

#include <charconv>
#include <cmath>

#include "libcore/text/utf8.h"

namespace rw {
namespace {

constexpr float kImpossible = -9999.0F;

template <typename T>
void append_shortest(std::string& out, T value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out.append(text, end);
}

void append_escape(std::string& out, unsigned char c) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default:
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
  }
}

void append_escaped(std::string& out, std::string_view text) {
  size_t kept = 0;  // everything before it has been written
  for (size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, kept, at - kept);
    append_escape(out, c);
    kept = at + 1;
  }
  out.append(text, kept);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  if (valid_utf8(text)) append_escaped(out, text);
  else append_escaped(out, replace_invalid_utf8(text));
  out += '"';
}

void append_json_int(std::string& out, int64_t value) { append_shortest(out, value); }

void append_json_logprob(std::string& out, float value) {
  append_shortest(out, std::isfinite(value) && value > kImpossible ? value : kImpossible);
}

void append_json_number(std::string& out, double value) {
  if (std::isfinite(value)) append_shortest(out, value);
  else out += "null";
}

void append_json_ids(std::string& out, const std::vector<int32_t>& ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_json_int(out, ids[i]);
  }
  out += ']';
}

void append_json_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_json_int(out, static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

}  // namespace rw
