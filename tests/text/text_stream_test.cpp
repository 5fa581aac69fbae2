#include "libcore/text/text_stream.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "libcore/base/rng.h"
#include "libcore/text/utf8.h"
#include "tests/text/text_files.h"

using namespace rw;

namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : key_(rng_key(seed, "text stream")) {}
  size_t below(size_t n) { return static_cast<size_t>(random_bits(key_, at_++) % n); }

 private:
  uint64_t key_, at_ = 0;
};

struct Found {
  std::string text;
  int64_t stop = -1;
};

// The first end at which any stop string matches, of those the longest.
Found cut_at_stop(const std::string& text, const TextStreamSpec& spec) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int64_t best = -1;
    for (size_t i = 0; i < spec.stop.size(); ++i) {
      if (std::string_view(text).substr(0, end).ends_with(spec.stop[i]) &&
          (best < 0 || spec.stop[i].size() > spec.stop[static_cast<size_t>(best)].size()))
        best = static_cast<int64_t>(i);
    }
    if (best < 0) continue;
    return {text.substr(0, spec.include_stop ? end : end - spec.stop[static_cast<size_t>(best)].size()), best};
  }
  return {text, -1};
}

// Bytes of the longest proper prefix of a stop string that `text` ends with.
size_t longest_begun(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops)
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n)
      if (text.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
  return longest;
}

// How many bytes at the end are the beginning of a character: some bytes after them make a valid one.
size_t unfinished(const std::string& bytes) {
  for (size_t n = std::min<size_t>(3, bytes.size()); n > 0; --n) {
    const std::string end = bytes.substr(bytes.size() - n);
    for (int second = 0x80; second < 0xC0; ++second) {
      std::string more = end + static_cast<char>(second);
      for (int i = 0; i < 3; ++i, more += '\x80')
        if (valid_utf8(more) && utf8_length(more, 0) == static_cast<int>(more.size())) return n;
    }
  }
  return 0;
}

std::string bytes_of(const Tokenizer& t, const std::vector<int32_t>& ids, bool skip_special) {
  std::string bytes;
  for (const int32_t id : ids)
    if (!skip_special || !t.is_special(id)) bytes += t.token_bytes(id);
  return bytes;
}

void check_stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const TextStreamSpec& spec) {
  TextStream stream(tokenizer, spec);
  const Found expected = cut_at_stop(replace_invalid_utf8(bytes_of(tokenizer, ids, spec.skip_special_tokens)), spec);
  std::string shown;
  std::vector<int32_t> pushed;
  for (const int32_t id : ids) {
    const bool stopped = stream.stopped_by() >= 0;
    const std::string piece = stream.push(id);
    REQUIRE(valid_utf8(piece));
    if (stopped) REQUIRE(piece.empty());
    shown += piece;
    pushed.push_back(id);
    REQUIRE(expected.text.starts_with(shown));
    if (stream.stopped_by() >= 0) continue;
    std::string certain = bytes_of(tokenizer, pushed, spec.skip_special_tokens);
    certain.resize(certain.size() - unfinished(certain));
    certain = replace_invalid_utf8(certain);
    REQUIRE(shown.size() == certain.size() - longest_begun(certain, spec.stop));
  }
  const std::string piece = stream.finish();
  REQUIRE(valid_utf8(piece));
  REQUIRE(shown + piece == expected.text);
  REQUIRE(stream.stopped_by() == expected.stop);
  REQUIRE(stream.finish().empty());
}

std::string random_text(Random& r, size_t max_pieces) {
  static const std::vector<std::string> pieces = {"a",
                                                  "a",
                                                  "b",
                                                  "b",
                                                  "ab",
                                                  "\n",
                                                  " ",
                                                  "c",
                                                  "\xC3\xA9",
                                                  "\xE4\xBD\xA0",
                                                  "\xF0\x9F\xA6\x99",
                                                  "\xC3",
                                                  "\xE4\xBD",
                                                  "\xF0\x9F\xA6",
                                                  "\x80",
                                                  "\xFF",
                                                  "\xED\xA0\x80",
                                                  "\xEF\xBF\xBD",
                                                  "\xF4\x90",
                                                  "\xE0\x9F",
                                                  "<|endoftext|>"};
  std::string text;
  for (size_t n = r.below(max_pieces); n > 0; --n) text += pieces[r.below(pieces.size())];
  return text;
}

std::vector<int32_t> encode(const Tokenizer& t, const std::string& text) {
  std::vector<int32_t> ids;
  t.encode(text, ids);
  return ids;
}

// Any tokens at all: half characters before and after each other.
std::vector<int32_t> random_ids(Random& r, const Tokenizer& t, size_t n) {
  std::vector<int32_t> ids;
  for (; n > 0; --n) ids.push_back(static_cast<int32_t>(r.below(static_cast<size_t>(t.vocab_size()) + 1)));
  return ids;
}

std::string pushed(TextStream& stream, const Tokenizer& t, const std::string& text) {
  std::string shown;
  for (const int32_t id : encode(t, text)) shown += stream.push(id);
  return shown;
}

}  // namespace

TEST_CASE("text stream: half characters wait, and what can be none is U+FFFD") {
  const auto bytes = byte_tokenizer();
  TextStream stream(*bytes, {});
  CHECK(pushed(stream, *bytes, "a\xF0\x9F\xA6") == "a");
  CHECK(pushed(stream, *bytes, "\x99") == "\xF0\x9F\xA6\x99");
  CHECK(pushed(stream, *bytes, "\xE4\xBD") == "");
  CHECK(pushed(stream, *bytes, "x") == "\xEF\xBF\xBDx");
  CHECK(pushed(stream, *bytes, "\x80\xFF") == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(pushed(stream, *bytes, "\xED\xA0") == "\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate's bytes: two subparts
  CHECK(pushed(stream, *bytes, "\xF0\x9F") == "");
  CHECK(stream.finish() == "\xEF\xBF\xBD");
  CHECK(stream.finish() == "");
}

TEST_CASE("text stream: a stop string over several tokens, inside one, at the very start") {
  const auto bytes = byte_tokenizer();
  {
    TextStream stream(*bytes, {.stop = {"DEFGHIJ"}});
    CHECK(pushed(stream, *bytes, "abDEFG") == "ab");
    CHECK(pushed(stream, *bytes, "DEFGHI") == "DEFG");
    CHECK(pushed(stream, *bytes, "Jk") == "");
    CHECK(stream.stopped_by() == 0);
    CHECK(stream.finish() == "");
  }
  const auto gpt2 = load_tokenizer(test::text_golden("gpt2.tokenizer.json"));
  int32_t longest = 0;
  for (int32_t id = 0; id < gpt2->vocab_size(); ++id) {
    const std::string_view token = gpt2->token_bytes(id);
    const bool ascii = std::all_of(token.begin(), token.end(), [](char c) { return c > 0; });
    if (!gpt2->is_special(id) && ascii && token.size() > gpt2->token_bytes(longest).size() &&
        token.find(token.substr(2, 2)) == 2)
      longest = id;
  }
  const std::string token(gpt2->token_bytes(longest));
  REQUIRE(token.size() >= 5);
  {
    TextStream stream(*gpt2, {.stop = {token.substr(2, 2)}});
    CHECK(stream.push(longest) == token.substr(0, 2));
    CHECK(stream.stopped_by() == 0);
  }
  {
    TextStream stream(*gpt2, {.stop = {"no such thing", token.substr(0, 1)}, .include_stop = true});
    CHECK(stream.push(longest) == token.substr(0, 1));
    CHECK(stream.stopped_by() == 1);
    CHECK(stream.push(longest) == "");
  }
}

TEST_CASE("text stream: of several stop strings the one that ends first, of those the longest, of equals the first") {
  const auto bytes = byte_tokenizer();
  const auto stopped_by = [&](std::vector<std::string> stops, const std::string& text) {
    TextStream stream(*bytes, {.stop = std::move(stops)});
    pushed(stream, *bytes, text);
    return stream.stopped_by();
  };
  CHECK(stopped_by({"abcd", "bc"}, "abcd") == 1);
  CHECK(stopped_by({"c", "abc", "bc"}, "abc") == 1);
  CHECK(stopped_by({"bc", "abcd", "bc"}, "abc") == 0);
  CHECK(stopped_by({"abcx", "bcy", "cz"}, "abcy") == 1);
  CHECK(stopped_by({"abcx", "bcy", "cz"}, "abcz") == 2);
  CHECK(stopped_by({"aab"}, "aaaab") == 0);
  CHECK(stopped_by({"aab"}, "aaaa") == -1);
}

TEST_CASE("text stream: special tokens' text is skipped or shown") {
  const auto bytes = byte_tokenizer();
  {
    TextStream stream(*bytes, {.stop = {"<|end"}});
    CHECK(stream.push('a') == "a");
    CHECK(stream.push(256) == "");
    CHECK(stream.stopped_by() == -1);
  }
  {
    TextStream stream(*bytes, {.skip_special_tokens = false});
    CHECK(stream.push(256) == "<|endoftext|>");
  }
  TextStream stream(*bytes, {.stop = {"<|end"}, .skip_special_tokens = false});
  CHECK(stream.push(256) == "");
  CHECK(stream.stopped_by() == 0);
}

TEST_CASE(
    "text stream: pieces of random tokens make the text cut at the first stop string, nothing early, nothing late") {
  const auto bytes = byte_tokenizer();
  const auto gpt2 = load_tokenizer(test::text_golden("gpt2.tokenizer.json"));
  const auto llama3 = load_tokenizer(test::text_golden("llama3.tokenizer.json"));
  Random r(1);
  int64_t n_stopped = 0;
  constexpr int kRuns = 3000;
  for (int run = 0; run < kRuns; ++run) {
    CAPTURE(run);
    const Tokenizer& tokenizer = run % 3 == 0 ? *gpt2 : run % 3 == 1 ? *bytes : *llama3;
    const std::vector<int32_t> ids =
        run % 5 == 0 ? random_ids(r, tokenizer, r.below(20)) : encode(tokenizer, random_text(r, run % 7 == 0 ? 3 : 40));
    TextStreamSpec spec{.include_stop = r.below(2) == 0, .skip_special_tokens = r.below(2) == 0};
    const std::string text = replace_invalid_utf8(bytes_of(tokenizer, ids, spec.skip_special_tokens));
    for (size_t n = r.below(5); n > 0; --n) {
      // Out of the text itself, on character borders, or anything.
      size_t begin = r.below(text.size() + 1), end = std::min(text.size(), begin + 1 + r.below(9));
      while (begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;
      while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
      std::string stop = end > begin ? text.substr(begin, end - begin) : "ab";
      if (r.below(3) == 0) stop += "b";
      if (r.below(4) == 0) stop = replace_invalid_utf8(random_text(r, 4)) + "a";
      spec.stop.push_back(stop);
    }
    check_stream(tokenizer, ids, spec);
    n_stopped += cut_at_stop(text, spec).stop >= 0;
  }
  CHECK(n_stopped > kRuns / 4);
  CHECK(n_stopped < kRuns * 3 / 4);
}

TEST_CASE("text stream: a long text that nearly matches a long stop string") {
  const auto bytes = byte_tokenizer();
  const std::string stop = std::string(50'000, 'a') + "b";
  TextStream stream(*bytes, {.stop = {stop, std::string(49'999, 'a') + "c"}});
  std::string shown;
  for (int i = 0; i < 400'000; ++i) shown += stream.push('a');  // a step that cost the waiting text would take minutes
  CHECK(shown.size() == 350'000);
  shown += stream.push('c');
  CHECK(stream.stopped_by() == 1);
  CHECK(shown.size() == 400'000 - 49'999);
}
