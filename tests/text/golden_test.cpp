// Ids against those of the Hugging Face library (tests/golden/text/make_text_goldens.py).
#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "libcore/base/files.h"
#include "libcore/base/rng.h"
#include "libcore/text/tokenizer.h"
#include "libcore/text/utf8.h"
#include "tests/text/text_files.h"

using namespace rw;
using Value = nlohmann::json;

namespace {

struct Case {
  std::string text;
  std::vector<int32_t> ids;
};

Case read_case(const Value& v) { return {v.at(0).get<std::string>(), v.at(1).get<std::vector<int32_t>>()}; }

std::vector<Case> read_cases(const std::string& kind) {
  std::vector<Case> cases;
  for (const std::string& line : test::golden_lines(kind + ".jsonl")) cases.push_back(read_case(Value::parse(line)));
  return cases;
}

std::vector<int32_t> encode(const Tokenizer& t, std::string_view text,
                            Tokenizer::Specials how = Tokenizer::Specials::match) {
  std::vector<int32_t> ids;
  t.encode(text, ids, how);
  return ids;
}

int64_t count_differences(const Tokenizer& t, const std::vector<Case>& cases, Tokenizer::Specials how) {
  int64_t n = 0;
  for (const Case& c : cases) {
    const std::vector<int32_t> found = encode(t, c.text, how);
    if (found == c.ids) continue;
    ++n;
    CAPTURE(c.text);
    CHECK_MESSAGE(found == c.ids, "ids differ from the reference");
  }
  return n;
}

}  // namespace

TEST_CASE("ids equal the reference's for the three kinds of tokenizer") {
  int64_t n_cases = 0;
  for (const std::string kind : {"gpt2", "llama3", "qwen2"}) {
    CAPTURE(kind);
    const auto tokenizer = load_tokenizer(test::text_golden(kind + ".tokenizer.json"));
    const std::vector<Case> cases = read_cases(kind);
    n_cases += static_cast<int64_t>(cases.size());
    std::set<int32_t> seen;
    for (const Case& c : cases) seen.insert(c.ids.begin(), c.ids.end());
    REQUIRE(seen.size() > 500);  // the reference is no constant
    CHECK(count_differences(*tokenizer, cases, Tokenizer::Specials::match) == 0);
    CHECK(count_differences(*tokenizer, cases, Tokenizer::Specials::match) == 0);  // and from the word cache
    CHECK(*seen.rbegin() < tokenizer->vocab_size());
  }
  CHECK(n_cases >= 5000);
}

TEST_CASE("decoding gives the text back where no normalizer changes it") {
  for (const std::string kind : {"gpt2", "llama3"}) {
    CAPTURE(kind);
    const auto tokenizer = load_tokenizer(test::text_golden(kind + ".tokenizer.json"));
    for (const Case& c : read_cases(kind)) {
      REQUIRE(tokenizer->decode(c.ids) == c.text);
      REQUIRE(tokenizer->decode(encode(*tokenizer, c.text, Tokenizer::Specials::as_text)) == c.text);
    }
  }
}

TEST_CASE("ids of options that the three kinds do not use equal the reference's") {
  const Value base = Value::parse(read_file(test::text_golden("gpt2.tokenizer.json")));
  const std::vector<std::string> lines = test::golden_lines("variants.jsonl");
  REQUIRE(lines.size() > 50);
  for (const std::string& line : lines) {
    const Value variant = Value::parse(line);
    Value file = base;
    for (const char* key : {"normalizer", "pre_tokenizer", "added_tokens"}) {
      if (variant.contains(key)) file[key] = variant[key];
    }
    const std::string options = line.substr(0, line.find("\"cases\""));
    CAPTURE(options);
    const auto tokenizer = parse_tokenizer(file.dump(), "variant");
    std::vector<Case> cases;
    for (const Value& c : variant.at("cases")) cases.push_back(read_case(c));
    REQUIRE(cases.size() > 10);
    const bool skips = variant.value("skips_specials", false);
    CHECK(count_differences(*tokenizer, cases, skips ? Tokenizer::Specials::as_text : Tokenizer::Specials::match) == 0);
  }
}

TEST_CASE("words of any length: the ids of the textbook's loop") {
  const std::string file = read_file(test::text_golden("gpt2.tokenizer.json"));
  const auto tokenizer = parse_tokenizer(file, "gpt2");
  const Value model = Value::parse(file).at("model");
  std::map<std::pair<std::string, std::string>, size_t> rank;
  for (const Value& m : model.at("merges")) rank.emplace(std::pair(m.at(0), m.at(1)), rank.size());
  const auto naive = [&](const std::string& word) {
    std::vector<std::string> symbols;
    for (const char c : word) symbols.emplace_back(1, c);
    while (true) {
      size_t best = symbols.size(), best_rank = rank.size();
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = rank.find({symbols[i], symbols[i + 1]});
        if (found != rank.end() && found->second < best_rank) best = i, best_rank = found->second;
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    std::vector<int32_t> ids;
    for (const std::string& s : symbols) ids.push_back(model.at("vocab").at(s).get<int32_t>());
    return ids;
  };
  // Letters alone, so that the word is not cut; lengths on both sides of the cache's, the scan's and the slot's limits.
  for (const size_t length : {1, 2, 3, 29, 30, 31, 32, 63, 64, 65, 66, 127, 1009}) {
    for (uint64_t round = 0; round < 10; ++round) {
      std::string word;
      for (size_t i = 0; i < length; ++i) {
        word += "etaoinshrdluthe"[random_bits(round, i * 2000 + length) % 15];
      }
      CAPTURE(word);
      const std::vector<int32_t> expected = naive(word);
      CHECK(encode(*tokenizer, word) == expected);
      CHECK(encode(*tokenizer, word) == expected);
    }
  }
}

TEST_CASE("invalid UTF-8 is encoded as its replacement") {
  const auto tokenizer = load_tokenizer(test::text_golden("gpt2.tokenizer.json"));
  for (const std::string bytes : {"\xFF", "a\xC3", "\xE2\x82(", "\xED\xA0\x80", "\xF0\x9F\x98 \x80x"}) {
    CHECK(encode(*tokenizer, bytes) == encode(*tokenizer, replace_invalid_utf8(bytes)));
    CHECK(encode(*tokenizer, bytes) != encode(*tokenizer, ""));
  }
}

TEST_CASE("special tokens, templates and the end of a text") {
  const auto gpt2 = load_tokenizer(test::text_golden("gpt2.tokenizer.json"));
  const auto llama3 = load_tokenizer(test::text_golden("llama3.tokenizer.json"));
  const auto qwen2 = load_tokenizer(test::text_golden("qwen2.tokenizer.json"));
  CHECK(gpt2->end_of_text() == gpt2->id_of("<|endoftext|>"));
  CHECK(llama3->end_of_text() == llama3->id_of("<|end_of_text|>"));
  CHECK(qwen2->end_of_text() == qwen2->id_of("<|endoftext|>"));
  CHECK(gpt2->is_special(gpt2->end_of_text()));
  CHECK(gpt2->token_bytes(gpt2->end_of_text()) == "<|endoftext|>");
  CHECK(llama3->text_template().before == std::vector<int32_t>{llama3->id_of("<|begin_of_text|>")});
  CHECK(llama3->text_template().after.empty());
  CHECK(gpt2->text_template().before.empty());
  CHECK_FALSE(qwen2->is_special(qwen2->id_of("<think>")));
  CHECK(qwen2->is_special(qwen2->id_of("<|im_end|>")));
  CHECK(encode(*gpt2, "<|endoftext|>").size() == 1);
  CHECK(encode(*gpt2, "<|endoftext|>", Tokenizer::Specials::as_text).size() > 1);
  CHECK(encode(*qwen2, "<think>", Tokenizer::Specials::as_text).size() == 1);  // added, but not special
  CHECK(gpt2->token_bytes(gpt2->id_of("\xC4\xA0the")) == " the");
  CHECK(gpt2->token_bytes(-1).empty());
  CHECK(gpt2->token_bytes(static_cast<int32_t>(gpt2->vocab_size())).empty());
  CHECK(gpt2->id_of("no such token") == -1);
  CHECK(gpt2->identity().starts_with("bpe-"));
  CHECK(gpt2->identity() != llama3->identity());
  CHECK(parse_tokenizer(gpt2->json(), "again")->identity() == gpt2->identity());
}

TEST_CASE("threads share a tokenizer") {
  const auto tokenizer = load_tokenizer(test::text_golden("qwen2.tokenizer.json"));
  const std::vector<Case> cases = read_cases("qwen2");
  std::vector<int64_t> differences(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < differences.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < cases.size(); i += 2) differences[t] += encode(*tokenizer, cases[i].text) != cases[i].ids;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(differences == std::vector<int64_t>(4, 0));
}
