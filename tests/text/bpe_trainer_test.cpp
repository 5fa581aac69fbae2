#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/text/tokenizer.h"
#include "tests/text/text_files.h"

using namespace rw;
using Value = nlohmann::json;

namespace {

// Learns from the strings of gpt2.jsonl, as the reference trainer did.
std::string learn(int64_t vocab_size) {
  BpeTrainer trainer(vocab_size);
  for (const std::string& line : test::golden_lines("gpt2.jsonl"))
    trainer.add(Value::parse(line).at(0).get<std::string>());
  return trainer.finish();
}

}  // namespace

TEST_CASE("the learned merges are those of the Hugging Face trainer") {
  const Value reference = Value::parse(read_file(test::text_golden("trained.json")));
  Value mine = Value::parse(learn(900)).at("model");
  REQUIRE(reference.at("merges").size() > 600);
  CHECK(mine.at("vocab").at("<|endoftext|>") == 899);
  mine.at("vocab").erase("<|endoftext|>");
  CHECK(mine.at("merges") == reference.at("merges"));
  CHECK(mine.at("vocab") == reference.at("vocab"));
}

TEST_CASE("what was learned loads, encodes and ends a text") {
  const std::string json = learn(700);
  CHECK(json == learn(700));
  const auto tokenizer = parse_tokenizer(json, "learned");
  CHECK(tokenizer->vocab_size() == 700);
  CHECK(tokenizer->end_of_text() == 699);
  CHECK(tokenizer->json() == json);
  const std::string text = "In the beginning \xE6\x9D\xB1 \t\r\n it's 1234<|endoftext|>x";
  std::vector<int32_t> ids;
  tokenizer->encode(text, ids);
  CHECK(tokenizer->decode(ids) == text);
  CHECK(ids.size() < text.size() - 13);
}

TEST_CASE("small corpora: fewer tokens, and the tie rule") {
  BpeTrainer nothing(300);
  CHECK(parse_tokenizer(nothing.finish(), "nothing")->vocab_size() == 257);

  BpeTrainer once(300);
  once.add("abcdef");  // no pair twice
  CHECK(parse_tokenizer(once.finish(), "once")->vocab_size() == 257);

  // (b, c), (a, b) and (x, y) occur three times each: the lowest left id goes first, and then (ab, c) before (x, y) is
  // no tie any more by id alone: ids of new tokens are higher than those of bytes.
  BpeTrainer ties(259);
  for (int i = 0; i < 3; ++i) ties.add("abc xy");
  const Value merges = Value::parse(ties.finish()).at("model").at("merges");
  CHECK(merges == Value::parse(R"([["a", "b"], ["x", "y"]])"));

  BpeTrainer overlapping(259);
  for (int i = 0; i < 2; ++i) overlapping.add("aaaaa");
  CHECK(Value::parse(overlapping.finish()).at("model").at("merges") == Value::parse(R"([["a", "a"], ["aa", "a"]])"));

  BpeTrainer broken(258);
  broken.add("\xFF\xFE");  // two U+FFFD, three bytes each
  broken.add("\xFF\xFE");
  CHECK(parse_tokenizer(broken.finish(), "broken")->vocab_size() == 258);
}

TEST_CASE("a vocabulary smaller than the bytes is refused") {
  try {
    BpeTrainer trainer(256);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    CHECK(std::string(e.what()).find("at least 257") != std::string::npos);
  }
}
