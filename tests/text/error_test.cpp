// What is wrong with a tokenizer file is said with the file, the key, what was expected and what was found.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/text/tokenizer.h"
#include "tests/text/text_files.h"

using namespace rw;
using Value = nlohmann::json;

namespace {

template <typename F>
std::string message_of(const F& f, ErrorKind kind = ErrorKind::input) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    return e.what();
  }
  return "no error";
}

void check_message(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    CAPTURE(message);
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

struct Edit {
  const char* pointer;  // into the file
  const char* value;    // JSON; null: the key is taken out
  std::vector<std::string> says;
};

}  // namespace

TEST_CASE("a wrong key is named, with what was expected and found") {
  const Value good = Value::parse(read_file(test::text_golden("llama3.tokenizer.json")));
  const Edit edits[] = {
      {"/model/type", "\"WordPiece\"", {"model.type", "\"BPE\"", "found \"WordPiece\""}},
      {"/model/type", "\"Unigram\"", {"model.type", "found \"Unigram\""}},
      {"/model", nullptr, {": model:", "found nothing"}},
      {"/model/vocab", "[1]", {"model.vocab", "an object", "a list of 1"}},
      {"/model/vocab", nullptr, {"model.vocab", "found nothing"}},
      {"/model/merges", nullptr, {"model.merges", "a list", "found nothing"}},
      {"/model/merges/3", "\"abc\"", {"model.merges[3]", "two tokens", "\"abc\""}},
      {"/model/merges/3", "[\"a\"]", {"model.merges[3]", "two tokens", "a list of 1"}},
      {"/model/merges/0", "[\"a\", \"no such\"]", {"model.merges[0]", "\"no such\"", "not in model.vocab"}},
      {"/model/vocab/!", "-1", {"model.vocab[!]", "an id from 0", "found -1"}},
      {"/model/vocab/!", "1e99", {"model.vocab[!]", "an id from 0"}},
      {"/model/vocab/!", "99999999999999999999", {"model.vocab[!]", "an id from 0"}},
      {"/model/vocab/!", "4294967296", {"model.vocab[!]", "found 4294967296"}},
      {"/model/vocab/!", "1", {"model.vocab", "id 1 is given to"}},
      {"/model/dropout", "0.1", {"model.dropout", "found 0.1"}},
      {"/model/end_of_word_suffix", "\"</w>\"", {"model.end_of_word_suffix", "</w>"}},
      {"/pre_tokenizer", "null", {"pre_tokenizer", "ByteLevel", "found null"}},
      {"/pre_tokenizer", "{\"type\": \"Metaspace\"}", {"pre_tokenizer.type", "ByteLevel, Split", "\"Metaspace\""}},
      {"/pre_tokenizer/pretokenizers/0/type", "\"Foo\"", {"pre_tokenizer.pretokenizers[0].type", "\"Foo\""}},
      {"/pre_tokenizer/pretokenizers/0/behavior",
       "\"Sometimes\"",
       {"pretokenizers[0].behavior", "Isolated", "\"Sometimes\""}},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex",
       "\"(\"",
       {"pretokenizers[0].pattern.Regex", "regex \"(\"", "parenthesis"}},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[a[b]]\"", {"pattern.Regex", "a class inside a class"}},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[a&&b]\"", {"pattern.Regex", "&&"}},
      {"/pre_tokenizer/pretokenizers/0/pattern", "{}", {"pretokenizers[0].pattern", "Regex", "an object"}},
      {"/normalizer", "{\"type\": \"Precompiled\"}", {"normalizer.type", "NFC", "\"Precompiled\""}},
      {"/added_tokens/2/content", "7", {"added_tokens[2].content", "a string", "found 7"}},
      {"/added_tokens/2/special", "1", {"added_tokens[2].special", "true or false"}},
      {"/post_processor", "{\"type\": \"Foo\"}", {"post_processor.type", "\"Foo\""}},
  };
  for (const Edit& edit : edits) {
    Value file = good;
    const Value::json_pointer pointer(edit.pointer);
    if (edit.value != nullptr) {
      file[pointer] = Value::parse(edit.value);
    } else {
      file[pointer.parent_pointer()].erase(pointer.back());
    }
    const std::string message = message_of([&] { parse_tokenizer(file.dump(), "dir/tokenizer.json"); });
    check_message(message, edit.says);
    check_message(message, {"dir/tokenizer.json"});
  }
}

TEST_CASE("missing and corrupt files are named") {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("rw_text_error_" + std::to_string(static_cast<long>(::getpid())));
  std::filesystem::create_directories(dir);
  check_message(message_of([&] { load_tokenizer(dir / "none.json"); }), {"none.json", "no such file", "\"bytes\""});
  check_message(message_of([&] { load_tokenizer(dir); }), {(dir / "tokenizer.json").string(), "no such file"});
  std::ofstream(dir / "tokenizer.model") << "x";
  check_message(message_of([&] { load_tokenizer(dir); }), {"tokenizer.model", "SentencePiece"});
  const std::string good = read_file(test::text_golden("gpt2.tokenizer.json"));
  std::ofstream(dir / "tokenizer.json") << good.substr(0, good.size() / 2);
  check_message(message_of([&] { load_tokenizer(dir); }), {"tokenizer.json", "not JSON"});
  std::ofstream(dir / "tokenizer.json") << "[1, 2]";
  check_message(message_of([&] { load_tokenizer(dir); }), {"tokenizer.json", "expected an object", "a list of 2"});
  std::ofstream(dir / "tokenizer.json") << good;
  CHECK(load_tokenizer(dir)->vocab_size() == 1001);
  std::filesystem::remove_all(dir);
}

TEST_CASE("a pattern that backtracks without end stops with a message, deep nesting too") {
  Value file = Value::parse(read_file(test::text_golden("llama3.tokenizer.json")));
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(x+x+)+[yz]";
  const auto tokenizer = parse_tokenizer(file.dump(), "slow");
  std::vector<int32_t> ids;
  const std::string message = message_of([&] { tokenizer->encode(std::string(60, 'x'), ids); });
  check_message(message, {"(x+x+)+[yz]", "60 bytes", "backtracks"});
  tokenizer->encode("short", ids);
  CHECK(ids.size() > 0);

  std::string nested = "{\"type\": \"ByteLevel\"}";
  for (int i = 0; i < 100; ++i) nested = "{\"type\": \"Sequence\", \"pretokenizers\": [" + nested + "]}";
  file["pre_tokenizer"] = Value::parse(nested);
  check_message(message_of([&] { parse_tokenizer(file.dump(), "deep"); }), {"deep", "inside each other"});
}

TEST_CASE("long runs of white space are within the limits") {
  for (const std::string kind : {"gpt2", "llama3", "qwen2"}) {
    const auto tokenizer = load_tokenizer(test::text_golden(kind + ".tokenizer.json"));
    const std::string text = std::string(1'000'000, ' ') + "x" + std::string(300'000, '\n') + " y";
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    CHECK(tokenizer->decode(ids) == text);
  }
}
