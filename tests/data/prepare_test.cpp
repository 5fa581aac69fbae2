#include "libcore/data/prepare.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <algorithm>

#include "libcore/base/files.h"
#include "libcore/text/tokenizer.h"
#include "tests/data/scratch.h"

using namespace rw;

namespace {

std::vector<int32_t> tokens_of(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.n_tokens()));
  file.read(0, file.n_tokens(), ids.data());
  return ids;
}

PrepareReport quiet(const PrepareSpec& spec) {
  return prepare(spec, [](const PrepareProgress&) {});
}

// English-like text with punctuation, digits, runs of blanks and lines, and characters of two, three and four bytes.
std::string varied_text(size_t bytes) {
  const std::vector<std::string> parts = {"the",
                                          "Word",
                                          "don't",
                                          "12345",
                                          " ",
                                          "  ",
                                          "\n",
                                          "\n\n",
                                          "\r\n",
                                          ".",
                                          ", ",
                                          "!?",
                                          "\t",
                                          "caf\xc3\xa9",
                                          "\xe4\xbd\xa0\xe5\xa5\xbd",
                                          "\xf0\x9f\x99\x82",
                                          "x",
                                          "ing",
                                          " and",
                                          " of",
                                          "e\xcc\x81",
                                          "\xc2\xa0",
                                          ":\n"};
  std::string text;
  uint64_t state = 77;
  while (text.size() < bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text += parts[(state >> 33) % parts.size()];
  }
  return text;
}

}  // namespace

TEST_CASE("bytes: ids are the bytes, an end-of-text id after every document") {
  const Scratch scratch;
  const std::string a = scratch.write("a.txt", "Hi\n\xff"),
                    b = scratch.write("b.jsonl", "{\"text\":\"\xc3\xa9\"}\n{\"text\":\"\"}\n{\"text\":\"z\"}\n");
  const PrepareReport report = quiet({.input = {a, b}, .output = scratch / "t.h5", .tokenizer = "bytes"});
  const TokenFile file(scratch / "t.h5");
  CHECK(tokens_of(file) == std::vector<int32_t>{'H', 'i', '\n', 255, 256, 0xc3, 0xa9, 256, 'z', 256});
  CHECK(file.n_documents() == 3);  // the empty one is none
  CHECK(file.document_offset(1) == 5);
  CHECK(file.n_bytes() == 7);
  CHECK(file.verify());
  CHECK(report.documents == 3);
  CHECK(report.bytes == 7);
  CHECK(report.tokens == 10);
  CHECK(report.bytes_per_token == 0.7);
  CHECK(report.vocab_size == 257);
  CHECK(report.fingerprint == file.fingerprint());
  CHECK(report.tokenizer == "bytes");
  CHECK(file.tokenizer_identity() == "bytes");
  CHECK(parse_tokenizer(file.tokenizer_json(), "x")->vocab_size() == 257);
}

TEST_CASE("a text in pieces, on any number of threads, has the ids of the whole") {
  const Scratch scratch;
  const std::string text = varied_text(60'000);
  const std::string path = scratch.write("a.txt", text);
  const PrepareReport learned = quiet({.input = {path}, .output = scratch / "t.h5", .train_bpe = 400});
  CHECK(learned.tokenizer_file == (scratch / "t.tokenizer.json").string());
  // The same vocabulary behind the pattern of Llama 3, which takes white space and line ends in another way.
  std::string llama = read_file(learned.tokenizer_file);
  const std::string gpt2_rule =
      R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  const std::string llama_rule =
      R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})";
  REQUIRE(contains(llama, gpt2_rule));
  llama.replace(llama.find(gpt2_rule), gpt2_rule.size(), llama_rule);
  std::vector<std::vector<int32_t>> wholes;
  for (const std::string& tokenizer : {learned.tokenizer_file, scratch.write("llama.json", llama).string()}) {
    CAPTURE(tokenizer);
    const auto whole = load_tokenizer(tokenizer);
    std::vector<int32_t> expected;
    whole->encode(text, expected);
    REQUIRE(expected.size() > 10'000);
    REQUIRE(*std::max_element(expected.begin(), expected.end()) > 300);
    expected.push_back(whole->end_of_text());
    wholes.push_back(expected);
    for (const auto& [threads, piece] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 200}, {3, 200}, {2, 1999}, {3, 20'000}, {1, 1 << 20}}) {
      CAPTURE(piece);
      quiet({.input = {path},
             .output = scratch / "u.h5",
             .tokenizer = tokenizer,
             .threads = threads,
             .piece_bytes = piece});
      const TokenFile file(scratch / "u.h5");
      CHECK(file.n_documents() == 1);
      CHECK(tokens_of(file) == expected);
      CHECK(file.tokenizer_identity() == whole->identity());
      CHECK(file.tokenizer_json() == whole->json());
    }
  }
  CHECK(wholes[0] != wholes[1]);
}

TEST_CASE("a learned tokenizer does not depend on where the text comes from or how it is cut") {
  const Scratch scratch;
  const std::string path = scratch.write("a.txt", varied_text(50'000));
  const PrepareReport from_file =
      quiet({.input = {path}, .output = scratch / "a.h5", .train_bpe = 350, .piece_bytes = 777});
  const int fd = open(path.c_str(), O_RDONLY);
  const PrepareReport from_stdin =
      quiet({.input = {"-"}, .output = scratch / "b.h5", .train_bpe = 350, .stdin_descriptor = fd});
  close(fd);
  CHECK(from_file.fingerprint == from_stdin.fingerprint);
  CHECK(from_file.tokenizer == from_stdin.tokenizer);
  CHECK(read_file(scratch / "a.tokenizer.json") == read_file(scratch / "b.tokenizer.json"));
  auto names = scratch.names();
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"a.h5", "a.tokenizer.json", "a.txt", "b.h5", "b.tokenizer.json"});
}

TEST_CASE("--train-bpe-bytes learns from a part, taken from all over") {
  const Scratch scratch;
  // Two halves with words of their own: an even sample sees both.
  std::string text;
  while (text.size() < 300'000) text += "abcab\n";
  while (text.size() < 600'000) text += "vwxyz\n";
  const std::string path = scratch.write("a.txt", text);
  PrepareSpec spec{
      .input = {path}, .output = scratch / "a.h5", .train_bpe = 265, .train_bpe_bytes = 70'000, .piece_bytes = 20'000};
  quiet(spec);
  const auto tokenizer = load_tokenizer(scratch / "a.tokenizer.json");
  std::vector<int32_t> ids;
  tokenizer->encode("abcabvwxyz", ids);
  CHECK(ids.size() <= 5);
  spec.train_bpe_bytes = 100;
  CHECK(contains(error_of([&] { quiet(spec); }), "--train-bpe-bytes"));
}

TEST_CASE("special tokens in the text are matched or are text") {
  const Scratch scratch;
  const std::string path = scratch.write("a.txt", "ab ab<|endoftext|>ab ab");
  quiet({.input = {path}, .output = scratch / "a.h5", .train_bpe = 258});
  const std::string tokenizer = scratch / "a.tokenizer.json";
  const auto end = static_cast<int32_t>(load_tokenizer(tokenizer)->end_of_text());
  const auto ends_in = [&](const std::string& rule) {
    quiet({.input = {path}, .output = scratch / "b.h5", .tokenizer = tokenizer, .special_tokens = rule});
    const auto ids = tokens_of(TokenFile(scratch / "b.h5"));
    return std::count(ids.begin(), ids.end(), end);
  };
  CHECK(ends_in("match") == 2);
  CHECK(ends_in("text") == 1);
}

TEST_CASE("progress comes by, and grows") {
  const Scratch scratch;
  const std::string path = scratch.write("a.txt", varied_text(100'000));
  std::vector<std::string> phases;
  int64_t last = 0;
  prepare({.input = {path}, .output = scratch / "a.h5", .train_bpe = 300, .piece_bytes = 10'000},
          [&](const PrepareProgress& p) {
            if (phases.empty() || phases.back() != p.phase) phases.push_back(p.phase), last = 0;
            if (p.bytes_done > 0) CHECK(p.bytes_done >= last);
            last = p.bytes_done;
            if (p.bytes_total >= 0) CHECK(p.bytes_done <= p.bytes_total);
          });
  CHECK(phases == std::vector<std::string>{"counting words", "learning merges", "encoding", "writing"});
}

TEST_CASE("bad requests and bad input leave what was there") {
  const Scratch scratch;
  const std::string good = scratch.write("a.txt", "text"), output = scratch / "t.h5";
  quiet({.input = {good}, .output = output, .tokenizer = "bytes"});
  const std::string before = read_file(output);
  const auto error = [&](PrepareSpec spec) { return error_of([&] { quiet(spec); }); };
  CHECK(contains(error({.output = output, .tokenizer = "bytes"}), "2 --input"));
  CHECK(contains(error({.input = {good}, .tokenizer = "bytes"}), "2 --output"));
  CHECK(contains(error({.input = {good}, .output = output}), "found neither"));
  CHECK(contains(error({.input = {good}, .output = output, .tokenizer = "bytes", .train_bpe = 300}), "found both"));
  CHECK(
      contains(error({.input = {good}, .output = scratch / "no/t.h5", .tokenizer = "bytes"}), "folder does not exist"));
  CHECK(contains(error({.input = {good}, .output = scratch.path, .tokenizer = "bytes"}), "found a directory"));
  CHECK(contains(error({.input = {good}, .output = good, .tokenizer = "bytes"}), "is also an input"));
  CHECK(contains(error({.input = {scratch / "no.txt"}, .output = output, .tokenizer = "bytes"}), "no.txt"));
  CHECK(contains(error({.input = {good}, .output = output, .tokenizer = scratch / "no.json"}), "no.json"));
  CHECK(contains(error({.input = {scratch.write("empty.txt", "")}, .output = output, .tokenizer = "bytes"}),
                 "the corpus is empty"));
  const std::string bad = scratch.write("b.jsonl", "{\"text\":\"fine\"}\n{\"text\":}\n");
  CHECK(contains(error({.input = {good, bad}, .output = output, .tokenizer = "bytes"}), "b.jsonl:2"));
  CHECK(read_file(output) == before);
  CHECK(scratch.names().size() == 4);
}
