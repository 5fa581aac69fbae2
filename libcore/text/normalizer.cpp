#include "libcore/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/text/utf8.h"
#include "libcore/text/word_character.h"

namespace rw {
namespace {

using Kind = NormalizerStep::Kind;

// Whether every character is below U+0080 (or U+0300, whose characters are all in composed form already): nothing to
// do.
bool is_below(std::string_view text, unsigned char lead) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= lead) return false;
  }
  return true;
}

// Hugging Face's tables of normal forms are those of Unicode 9. Characters that came later and would decompose, compose
// or move among marks here (utf8proc: Unicode 15) stay where they are there, so a text is normalized in pieces around
// them.
constexpr std::array<std::array<uint32_t, 2>, 47> kNewerCharacters{{
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
}};

bool is_newer(uint32_t c) {
  const auto* range = std::lower_bound(kNewerCharacters.begin(), kNewerCharacters.end(), c,
                                       [](const std::array<uint32_t, 2>& r, uint32_t value) { return r[1] < value; });
  return range != kNewerCharacters.end() && (*range)[0] <= c;
}

std::string known_form(std::string_view text, int options) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  CHECK(bytes >= 0, "utf8proc: %s", utf8proc_errmsg(bytes));
  std::string out(reinterpret_cast<const char*>(result), static_cast<size_t>(bytes));
  std::free(result);
  return out;
}

std::string unicode_form(std::string_view text, int options) {
  std::string out;
  size_t done = 0;
  const auto finish = [&](size_t end) {
    if (done < end) out += known_form(text.substr(done, end - done), options);
  };
  for (size_t at = 0; at < text.size();) {
    const auto length = static_cast<size_t>(utf8_length(text, at));
    if (is_newer(utf8_at(text, at))) {
      finish(at);
      out += text.substr(at, length);
      done = at + length;
    }
    at += length;
  }
  finish(text.size());
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(utf8_length(text, at))) {
    const uint32_t c = utf8_at(text, at);
    if (c == 0x130) {
      out += "i\xCC\x87";  // the one character whose full lower case is two
    } else {
      append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

std::string replace(std::string_view text, const NormalizerStep& step, RegexScratch& scratch) {
  std::string out;
  RegexWalk walk(*step.pattern, text, scratch);
  RegexMatch match{};
  size_t done = 0;
  while (walk.next(match)) {
    out += text.substr(done, match.begin - done);
    out += step.content;
    done = match.end;
  }
  out += text.substr(done);
  return out;
}

std::string_view strip(std::string_view text, const NormalizerStep& step) {
  if (step.strips_left) text.remove_prefix(spaces_at_start(text));
  if (step.strips_right) text.remove_suffix(spaces_at_end(text));
  return text;
}

std::string apply(const NormalizerStep& step, std::string_view text, RegexScratch& scratch) {
  switch (step.kind) {
    case Kind::nfc: return unicode_form(text, UTF8PROC_COMPOSE);
    case Kind::nfd: return unicode_form(text, UTF8PROC_DECOMPOSE);
    case Kind::nfkc: return unicode_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case Kind::nfkd: return unicode_form(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
    case Kind::lowercase: return lowercase(text);
    case Kind::replace: return replace(text, step, scratch);
    case Kind::prepend: return step.content + std::string(text);
    case Kind::strip: return std::string(strip(text, step));
  }
  return std::string(text);
}

bool changes_nothing(const NormalizerStep& step, std::string_view text) {
  if (text.empty()) return true;
  if (step.kind == Kind::nfc) return is_below(text, 0xCC);  // U+0300 is CC 80
  if (step.kind == Kind::nfd || step.kind == Kind::nfkc || step.kind == Kind::nfkd) return is_below(text, 0x80);
  return false;
}

}  // namespace

std::string_view normalize(const std::vector<NormalizerStep>& steps, std::string_view text, std::string& buffer,
                           RegexScratch& scratch) {
  for (const NormalizerStep& step : steps) {
    if (changes_nothing(step, text)) continue;
    std::string next = apply(step, text, scratch);  // `text` may be a view of `buffer`
    buffer = std::move(next);
    text = buffer;
  }
  return text;
}

}  // namespace rw
