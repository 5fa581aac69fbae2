#include <doctest/doctest.h>

#include <set>

#include "libcore/text/byte_alphabet.h"
#include "libcore/text/tokenizer.h"
#include "libcore/text/tokenizer_json.h"
#include "libcore/text/utf8.h"

using namespace rw;

TEST_CASE("bytes: every byte is its id and 256 ends a text") {
  const auto tokenizer = load_tokenizer("bytes");
  CHECK(tokenizer->vocab_size() == 257);
  CHECK(tokenizer->end_of_text() == 256);
  CHECK(tokenizer->identity() == "bytes");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  std::vector<int32_t> ids;
  tokenizer->encode(all, ids);
  REQUIRE(ids.size() == 256);
  for (int32_t byte = 0; byte < 256; ++byte) CHECK(ids[static_cast<size_t>(byte)] == byte);
  CHECK(tokenizer->decode(ids) == all);
  ids.clear();
  tokenizer->encode("a<|endoftext|>", ids);
  CHECK(ids == std::vector<int32_t>{'a', 256});
  ids.clear();
  tokenizer->encode("<|endoftext|>", ids, Tokenizer::Specials::as_text);
  CHECK(ids.size() == 13);
  CHECK(tokenizer->id_of("<|endoftext|>") == 256);
  CHECK(tokenizer->id_of("A") == 65);
  CHECK(tokenizer->id_of("\xC4\xA0") == ' ');
  CHECK(tokenizer->id_of("ab") == -1);
  CHECK(tokenizer->token_bytes(257).empty());
  CHECK(tokenizer->is_special(256));
}

TEST_CASE("bytes: its tokenizer.json read as a BPE gives the same ids") {
  const auto bytes = byte_tokenizer();
  const auto bpe = parse_tokenizer(bytes->json() + " ", "a byte longer, so that it is not recognized");
  CHECK(bpe->identity() != "bytes");
  CHECK(parse_tokenizer(bytes->json(), "as written")->identity() == "bytes");
  for (const std::string text :
       {"", "hello <|endoftext|>\n", "\xE6\x9D\xB1\xE4\xBA\xAC \xF0\x9F\x98\x80", "it's 42\t\t"}) {
    std::vector<int32_t> a, b;
    bytes->encode(text, a);
    bpe->encode(text, b);
    CHECK(a == b);
  }
  CHECK(bpe->end_of_text() == 256);
}

TEST_CASE("the byte alphabet is GPT-2's") {
  // The rule as published: printable ASCII and Latin-1 map to themselves, the rest to U+0100 and up in byte order.
  uint32_t next = 0x100;
  std::set<uint32_t> seen;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool prints =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    CHECK(byte_character(static_cast<uint8_t>(byte)) == (prints ? byte : next++));
    seen.insert(byte_character(static_cast<uint8_t>(byte)));
  }
  CHECK(seen.size() == 256);
  std::string bytes = "kept";
  CHECK_FALSE(append_alphabet_bytes("a\xE6\x9D\xB1", bytes));
  CHECK(bytes == "kept");
  CHECK(append_alphabet_bytes(alphabet_text(std::string("\0 \xFF", 3)), bytes));
  CHECK(bytes == std::string("kept\0 \xFF", 7));
}

TEST_CASE("invalid UTF-8: one U+FFFD a maximal subpart, as Python's errors=\"replace\"") {
  const std::string r = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> cases[] = {// right: what Python 3 gives
                                                       {"", ""},
                                                       {"abc", "abc"},
                                                       {"\x80", r},
                                                       {"\xFF\xFE", r + r},
                                                       {"\xC0\x80", r + r},
                                                       {"\xC3", r},
                                                       {"\xC3(", r + "("},
                                                       {"\xE2\x82", r},
                                                       {"\xE2\x82x", r + "x"},
                                                       {"\xE0\x80\x80", r + r + r},
                                                       {"\xED\xA0\x80", r + r + r},
                                                       {"\xF0\x9F\x98", r},
                                                       {"\xF0\x9F\x98z", r + "z"},
                                                       {"\xF0\x80\x80\x80", r + r + r + r},
                                                       {"\xF4\x90\x80\x80", r + r + r + r},
                                                       {"\xF5\x80", r + r},
                                                       {"\xF0\x9F\xE2\x82\xAC", r + "\xE2\x82\xAC"},
                                                       {"12345678\xC3\xA9\xC3", "12345678\xC3\xA9" + r}};
  for (const auto& [bytes, expected] : cases) {
    CAPTURE(bytes);
    CHECK(replace_invalid_utf8(bytes) == expected);
    CHECK(valid_utf8(bytes) == (bytes == expected));
  }
  for (const uint32_t c : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_utf8(text, c);
    CHECK(utf8_at(text, 0) == c);
    CHECK(static_cast<size_t>(utf8_length(text, 0)) == text.size());
  }
}
