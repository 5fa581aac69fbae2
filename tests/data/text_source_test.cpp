#include "libcore/data/text_source.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include "tests/data/scratch.h"

using namespace rw;

namespace {

// Documents with their pieces joined; checks that first and last stand where they should.
std::vector<std::string> documents_of(const TextInput& input, const std::string& key = "text") {
  std::vector<std::string> documents;
  TextSource source(input);
  bool is_open = false;
  for (TextPiece piece; source.next(piece);) {
    CHECK(piece.is_first == !is_open);
    if (piece.is_first) documents.emplace_back();
    documents.back() += piece.is_json ? json_line_text(piece, key) : piece.text;
    is_open = !piece.is_last;
  }
  CHECK_FALSE(is_open);
  if (source.bytes_total() >= 0) CHECK(source.bytes_done() == source.bytes_total());
  return documents;
}

using Documents = std::vector<std::string>;

}  // namespace

TEST_CASE("documents of text files, for every piece size") {
  const Scratch scratch;
  const std::string content =
      "One  line\r\nand two.\n\n \t \n\n\nThird, paragraph 2\nlonger than the rest of them\n\nlast";
  const std::string path = scratch.write("a.txt", content);
  const std::string empty = scratch.write("empty.txt", ""), second = scratch.write("b.txt", "\n\nagain\n");
  for (const int64_t piece : {1, 2, 3, 7, 10, 64, 1000}) {
    CAPTURE(piece);
    TextInput input{.paths = {path, empty, second}, .piece_bytes = piece};
    CHECK(documents_of(input) == Documents{content, "\n\nagain\n"});
    input.document = DocumentRule::line;
    // A line that comes in pieces keeps the blanks it consists of; the third line here is blank, not empty.
    CHECK(documents_of(input) == Documents{"One  line", "and two.", " \t ", "Third, paragraph 2",
                                           "longer than the rest of them", "last", "again"});
    input.document = DocumentRule::blank_line;
    if (piece > 4)
      CHECK(documents_of(input) ==
            Documents{"One  line\nand two.", "Third, paragraph 2\nlonger than the rest of them", "last", "again"});
  }
}

TEST_CASE("files larger than a read buffer") {
  const Scratch scratch;
  std::string content;
  for (int64_t i = 0; content.size() < 5'000'000; ++i)
    content += "line " + std::to_string(i * 7919 % 10007) + (i % 97 == 0 ? "\n\n" : "\n");
  const TextInput input{.paths = {scratch.write("a.txt", content)}, .piece_bytes = 300'001};
  CHECK(documents_of(input) == Documents{content});
  const std::string one_line(3'000'000, 'x');
  TextInput lines{.paths = {scratch.write("b.txt", one_line + "\nshort\n")},
                  .document = DocumentRule::line,
                  .piece_bytes = 1 << 20};
  CHECK(documents_of(lines) == Documents{one_line, "short"});
  lines.document = DocumentRule::blank_line;
  CHECK(documents_of(lines) == Documents{one_line + "\nshort"});
}

TEST_CASE("JSONL: by suffix or by name, blank lines skipped, errors name file and line") {
  const Scratch scratch;
  const std::string content =
      "{\"text\": \"a\\nb \\u00e9\", \"n\": 1}\n\n  \n{\"id\": 7, \"text\": \"\"}\r\n{\"text\":\"last\"}";
  const Documents expected = {"a\nb \xc3\xa9", "", "last"};
  CHECK(documents_of({.paths = {scratch.write("a.jsonl", content)}}) == expected);
  CHECK(documents_of({.paths = {scratch.write("a.ndjson", content)}}) == expected);
  CHECK(documents_of({.paths = {scratch.write("a.data", content)}, .format = TextFormat::jsonl}) == expected);
  CHECK(documents_of({.paths = {scratch / "a.jsonl"}, .format = TextFormat::text}) == Documents{content});
  CHECK(documents_of({.paths = {scratch.write("b.jsonl", "{\"body\": \"x\"}")}}, "body") == Documents{"x"});
  const auto error = [&](const std::string& text) {
    return error_of([&] { documents_of({.paths = {scratch.write("bad.jsonl", "{\"text\": \"fine\"}\n\n" + text)}}); });
  };
  for (const char* bad :
       {"{\"text\": ", "[1, 2]", "\"text\"", "{\"text\": 5}", "{\"other\": \"x\"}", "{\"text\": \"\xff\"}", "plain"}) {
    CAPTURE(bad);
    CHECK(contains(error(bad), "2 " + (scratch / "bad.jsonl").string() + ":3"));
  }
}

TEST_CASE("standard input") {
  const Scratch scratch;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "from a pipe", 11) == 11);
  close(ends[1]);
  CHECK(documents_of({.paths = {"-"}, .stdin_descriptor = ends[0]}) == Documents{"from a pipe"});
  close(ends[0]);
  const int file = open(scratch.write("a", "from a file").c_str(), O_RDONLY);
  CHECK(documents_of({.paths = {"-"}, .stdin_descriptor = file}) == Documents{"from a file"});
  close(file);
  CHECK(contains(error_of([] { TextSource({.paths = {"-", "-"}}); }), "only once"));
}

TEST_CASE("what is not text is named") {
  const Scratch scratch;
  CHECK(
      contains(error_of([&] { documents_of({.paths = {scratch / "missing.txt"}}); }), "missing.txt: cannot be opened"));
  CHECK(contains(error_of([&] { documents_of({.paths = {scratch.path}}); }), "found a directory"));
  CHECK(contains(error_of([&] { documents_of({.paths = {scratch.write("a.gz", "\x1f\x8b\x08 etc")}}); }),
                 "zcat FILE | dtrain prepare --input -"));
  CHECK(contains(error_of([&] { documents_of({.paths = {scratch.write("a.parquet", "PAR1....")}}); }),
                 "found a Parquet"));
}

TEST_CASE("cut places") {
  CHECK(cut_place("") == 0);
  CHECK(cut_place("a") == 1);
  CHECK(cut_place("one two\nthree.\nx") == 7);  // before the line end: a letter stands before it
  CHECK(cut_place("one.\n\n two.") == 6);       // no such place, but the start of a line
  CHECK(cut_place("....\nxyz") == 5);
  CHECK(cut_place("\xe4\xbd\xa0\xe5\xa5\xbd") == 3);  // before the last character
}
