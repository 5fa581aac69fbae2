#include "libcore/data/duplicates.h"

#include <doctest/doctest.h>

#include "tests/data/scratch.h"

using namespace rw;

TEST_CASE("exact duplicates are counted, with the first pairs in document order") {
  const Scratch scratch;
  std::vector<int32_t> book(200'003);
  for (size_t i = 0; i < book.size(); ++i) book[i] = static_cast<int32_t>(i * i % 251);
  std::vector<int32_t> almost = book;
  almost.back() ^= 1;
  write_tokens(scratch / "t.h5", 300, {{1, 2}, book, {}, {1, 2}, almost, {2, 1}, book, {}, {1, 2}, {1, 2, 3}});
  const TokenFile file(scratch / "t.h5");
  const DuplicateReport report = find_duplicates(file, 2);
  CHECK(report.n_documents == 10);
  CHECK(report.n_duplicates == 3);
  CHECK(report.duplicate_tokens == 2 + 200'003 + 2);
  REQUIRE(report.first_pairs.size() == 2);
  CHECK(report.first_pairs[0].document == 3);
  CHECK(report.first_pairs[0].earlier == 0);
  CHECK(report.first_pairs[1].document == 6);
  CHECK(report.first_pairs[1].earlier == 1);
  CHECK(report.token_share() == doctest::Approx(200'007.0 / static_cast<double>(file.n_tokens())).epsilon(1e-12));
  CHECK(duplicates_text(report) ==
        "3 of 10 documents are exact copies of earlier ones (33.3 % of the tokens): 3 = 0, 6 = 1, ...");
  CHECK(find_duplicates(file, 0).first_pairs.empty());
  CHECK(find_duplicates(file, 9).first_pairs.size() == 3);
}

TEST_CASE("no duplicates") {
  const Scratch scratch;
  write_tokens(scratch / "t.h5", 300, {{1, 2}, {2, 1}, {1}, {2}});
  const DuplicateReport report = find_duplicates(TokenFile(scratch / "t.h5"), 5);
  CHECK(report.n_duplicates == 0);
  CHECK(report.token_share() == 0);
  CHECK(duplicates_text(report) == "no duplicate among 4 documents");
}

TEST_CASE("against a brute-force count") {
  const Scratch scratch;
  std::vector<std::vector<int32_t>> documents;
  uint64_t state = 9;
  for (int i = 0; i < 400; ++i) {
    std::vector<int32_t> d;
    do {
      state = state * 6364136223846793005u + 1442695040888963407u;
      d.push_back(static_cast<int32_t>(state >> 63));
    } while ((state >> 60) % 8 != 0 && d.size() < 12);
    documents.push_back(d);
  }
  int64_t expected = 0;
  for (size_t i = 0; i < documents.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (documents[i] == documents[j]) {
        ++expected;
        break;
      }
  REQUIRE(expected > 10);
  REQUIRE(expected < 390);
  write_tokens(scratch / "t.h5", 300, documents);
  CHECK(find_duplicates(TokenFile(scratch / "t.h5"), 5).n_duplicates == expected);
}
