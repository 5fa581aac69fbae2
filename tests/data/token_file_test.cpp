#include "libcore/data/token_file.h"

#include <doctest/doctest.h>
#include <hdf5.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/data/token_header.h"
#include "tests/data/scratch.h"

using namespace rw;

namespace {

std::vector<std::vector<int32_t>> some_documents(int64_t vocab) {
  std::vector<std::vector<int32_t>> documents;
  uint64_t state = 12345;
  for (const size_t size : {size_t{1}, size_t{0}, size_t{7}, size_t{4096}, size_t{4099}, size_t{0}, size_t{31}}) {
    std::vector<int32_t> d(size);
    for (int32_t& id : d) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      id = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab));
    }
    documents.push_back(d);
  }
  documents.back().back() = static_cast<int32_t>(vocab - 1);
  return documents;
}

std::vector<int32_t> flatten(const std::vector<std::vector<int32_t>>& documents) {
  std::vector<int32_t> all;
  for (const auto& d : documents) all.insert(all.end(), d.begin(), d.end());
  return all;
}

// Puts `edit`ed facts back into the file under a valid digest: what a hostile or buggy writer could do.
template <typename Edit>
void forge(const std::filesystem::path& file, Edit edit) {
  std::string bytes = read_file(file);
  TokenFacts facts = decode_header(bytes, static_cast<int64_t>(bytes.size()), "x");
  edit(facts);
  write_file_atomic(file, encode_header(facts) + bytes.substr(static_cast<size_t>(kTokenHeaderBytes)));
}

void poke(const std::filesystem::path& file, int64_t at, const std::string& what) {
  std::string bytes = read_file(file);
  bytes.replace(static_cast<size_t>(at), what.size(), what);
  write_file_atomic(file, bytes);
}

TokenFacts facts_of(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  return decode_header(bytes, static_cast<int64_t>(bytes.size()), "x");
}

std::string open_error(const std::filesystem::path& file) {
  return error_of([&] { TokenFile opened(file); });
}

}  // namespace

TEST_CASE("token files give back what was written, for narrow and wide ids") {
  const Scratch scratch;
  for (const int64_t vocab : {2, 257, 65536, 65537, 128256}) {
    CAPTURE(vocab);
    const auto documents = some_documents(vocab);
    const auto all = flatten(documents);
    REQUIRE(*std::min_element(all.begin(), all.end()) != *std::max_element(all.begin(), all.end()));
    const auto path = scratch / "t.h5";
    write_tokens(path, vocab, documents);
    const TokenFile file(path);
    CHECK(file.path() == path);
    CHECK(file.n_tokens() == static_cast<int64_t>(all.size()));
    CHECK(file.n_documents() == 7);
    CHECK(file.vocab_size() == vocab);
    CHECK(file.max_token() == vocab - 1);
    CHECK(file.n_bytes() == 3 * file.n_tokens());
    CHECK(file.tokenizer_json() == "{\"a\": \"tokenizer\"}");
    CHECK(file.tokenizer_identity() == "bpe-0123456789abcdef");
    CHECK(file.fingerprint().size() == 32);
    CHECK(file.verify());
    CHECK(facts_of(path).token_type == (vocab <= 65536 ? "u16" : "i32"));
    CHECK(facts_of(path).tokens_at % 4096 == 0);
    int64_t at = 0;
    for (int64_t d = 0; d < 7; ++d) {
      CHECK(file.document_offset(d) == at);
      const auto& expected = documents[static_cast<size_t>(d)];
      std::vector<int32_t> found(expected.size() + 2, -77);  // canaries on both sides
      file.read(at, static_cast<int64_t>(expected.size()), found.data() + 1);
      CHECK(found.front() == -77);
      CHECK(found.back() == -77);
      CHECK(std::equal(expected.begin(), expected.end(), found.begin() + 1));
      at += static_cast<int64_t>(expected.size());
    }
    CHECK(file.document_offset(7) == at);
    CHECK_THROWS_AS(file.document_offset(8), CheckFailed);
    int32_t none = 5;
    file.read(file.n_tokens(), 0, &none);
    CHECK(none == 5);
    CHECK_THROWS_AS(file.read(file.n_tokens(), 1, &none), CheckFailed);
    CHECK_THROWS_AS(file.read(-1, 1, &none), CheckFailed);
    CHECK(scratch.names() == std::vector<std::string>{"t.h5"});
  }
}

TEST_CASE("documents written in pieces are the same file") {
  const Scratch scratch;
  const auto documents = some_documents(300);
  write_tokens(scratch / "a.h5", 300, documents);
  TokenFileWriter writer(scratch / "b.h5", 300, "{\"a\": \"tokenizer\"}", "bpe-0123456789abcdef");
  for (const auto& d : documents) {
    const auto middle = d.begin() + static_cast<int64_t>(d.size()) / 3;
    writer.append({d.begin(), middle}, 0);
    writer.append({middle, d.end()}, static_cast<int64_t>(d.size()) * 3);
    writer.end_document();
  }
  CHECK(writer.n_documents() == 7);
  writer.finish();
  CHECK(writer.fingerprint() == TokenFile(scratch / "a.h5").fingerprint());
  CHECK(encode_header(facts_of(scratch / "a.h5")) == encode_header(facts_of(scratch / "b.h5")));
}

TEST_CASE("the fingerprint sees every token and every document boundary") {
  const Scratch scratch;
  const auto print = [&](const std::vector<std::vector<int32_t>>& documents) {
    write_tokens(scratch / "t.h5", 300, documents);
    return TokenFile(scratch / "t.h5").fingerprint();
  };
  const std::string base = print({{1, 2, 3}, {4}});
  CHECK(base == print({{1, 2, 3}, {4}}));
  CHECK(base != print({{1, 2, 3}, {5}}));
  CHECK(base != print({{1, 2}, {3, 4}}));
  CHECK(base != print({{1, 2, 3, 4}}));
}

TEST_CASE("the HDF5 library reads the same facts, tokens and offsets") {
  const Scratch scratch;
  for (const int64_t vocab : {1000, 70000}) {
    const auto documents = some_documents(vocab);
    const auto all = flatten(documents);
    write_tokens(scratch / "t.h5", vocab, documents);
    const TokenFacts facts = facts_of(scratch / "t.h5");
    const hid_t h5 = H5Fopen((scratch / "t.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    REQUIRE(h5 >= 0);
    const hid_t tokens = H5Dopen2(h5, "tokens", H5P_DEFAULT);
    CHECK(H5Dget_offset(tokens) == static_cast<haddr_t>(facts.tokens_at));
    CHECK(H5Dget_storage_size(tokens) == all.size() * (vocab <= 65536 ? 2 : 4));
    std::vector<int32_t> found(all.size());
    CHECK(H5Dread(tokens, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data()) >= 0);
    CHECK(found == all);
    H5Dclose(tokens);
    std::vector<int64_t> offsets(8);
    const hid_t offsets_set = H5Dopen2(h5, "document_offsets", H5P_DEFAULT);
    CHECK(H5Dread(offsets_set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, offsets.data()) >= 0);
    CHECK(offsets == std::vector<int64_t>{0, 1, 1, 8, 4104, 8203, 8203, 8234});
    H5Dclose(offsets_set);
    std::string json(18, '?');
    const hid_t json_set = H5Dopen2(h5, "tokenizer_json", H5P_DEFAULT);
    CHECK(H5Dread(json_set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, json.data()) >= 0);
    CHECK(json == "{\"a\": \"tokenizer\"}");
    H5Dclose(json_set);
    int64_t number = 0;
    hid_t attribute = H5Aopen(h5, "n_tokens", H5P_DEFAULT);
    CHECK(H5Aread(attribute, H5T_NATIVE_INT64, &number) >= 0);
    CHECK(number == static_cast<int64_t>(all.size()));
    H5Aclose(attribute);
    attribute = H5Aopen(h5, "fingerprint", H5P_DEFAULT);
    const hid_t type = H5Aget_type(attribute);
    std::string text(H5Tget_size(type), '?');
    CHECK(H5Aread(attribute, type, text.data()) >= 0);
    CHECK(text.c_str() == facts.fingerprint);
    H5Tclose(type);
    H5Aclose(attribute);
    H5Fclose(h5);
  }
}

TEST_CASE("a file of format version 1 stays readable") {
  const char* source = std::getenv("RANKWRIGHT_SOURCE");
  const TokenFile file(std::filesystem::path(source == nullptr ? "." : source) /
                       "tests/fuzz/corpus/token_file/narrow.h5");
  std::vector<int32_t> ids(8);
  REQUIRE(file.n_tokens() == 8);
  file.read(0, 8, ids.data());
  CHECK(ids == std::vector<int32_t>{1, 2, 3, 4, 5, 7, 299, 0});
  CHECK(file.document_offset(1) == 5);
  CHECK(file.document_offset(2) == 6);
  CHECK(file.n_documents() == 3);
  CHECK(file.tokenizer_json() == "{\"a\":1}");
  CHECK(file.verify());
}

TEST_CASE("files that are no token file say what they are") {
  const Scratch scratch;
  CHECK(contains(open_error(scratch / "missing.h5"), "missing.h5"));
  CHECK(contains(open_error(scratch.path), "directory"));
  CHECK(contains(open_error(scratch.write("empty.h5", "")), "not a token file"));
  CHECK(contains(open_error(scratch.write("text.h5", "In the beginning")), "found \"In the be\""));
  CHECK(contains(open_error(scratch.write("short.h5", "RWTOKENS 0123")), "truncated"));
  const hid_t h5 = H5Fcreate((scratch / "other.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(h5);
  CHECK(contains(open_error(scratch / "other.h5"), "an HDF5 file without a token file's header"));
}

TEST_CASE("damage is found at the door, with key, expected and found") {
  const Scratch scratch;
  const auto path = scratch / "t.h5";
  const auto fresh = [&] { write_tokens(path, 1000, {{1, 2, 3}, {4, 999}}); };
  const auto forged = [&](auto edit) {
    fresh();
    forge(path, edit);
    return open_error(path);
  };
  CHECK(contains(forged([](TokenFacts& f) { f.format_version = 2; }), "format_version: expected 1, found 2"));
  CHECK(contains(forged([](TokenFacts& f) { f.n_tokens = 0; }), "empty corpus"));
  CHECK(contains(forged([](TokenFacts& f) { f.n_tokens = -5; }), "n_tokens: expected 1 to"));
  CHECK(contains(forged([](TokenFacts& f) { f.n_tokens = INT64_MAX; }), "n_tokens"));
  CHECK(contains(forged([](TokenFacts& f) { f.n_tokens = int64_t{1} << 40; }), "truncated"));
  CHECK(contains(forged([](TokenFacts& f) { f.n_documents = 0; }), "n_documents"));
  CHECK(contains(forged([](TokenFacts& f) { f.n_documents = INT64_MAX; }), "n_documents"));
  CHECK(
      contains(forged([](TokenFacts& f) { f.token_type = "f32"; }), "token_type: expected u16 or i32, found \"f32\""));
  CHECK(contains(forged([](TokenFacts& f) { f.max_token = 1000; }), "max_token: expected 0 to 999, found 1000"));
  CHECK(contains(forged([](TokenFacts& f) { f.vocab_size = 65537; }), "vocab_size"));
  CHECK(contains(forged([](TokenFacts& f) { f.tokens_at = -4096; }), "tokens_at"));
  CHECK(contains(forged([](TokenFacts& f) { f.tokens_at += 1; }), "tokens_at: expected a multiple of 2"));
  CHECK(contains(forged([](TokenFacts& f) { f.document_offsets_at += 4; }),
                 "document_offsets_at: expected a multiple of 8"));
  CHECK(contains(forged([](TokenFacts& f) { f.tokenizer_json_bytes = INT64_MAX; }), "tokenizer_json_at"));
  CHECK(contains(forged([](TokenFacts& f) { f.fingerprint = "xyz"; }), "fingerprint: expected 32 hex digits"));
  CHECK(contains(forged([](TokenFacts& f) { f.tokens_at = INT64_MAX - 7; }), "tokens_at"));

  fresh();
  const TokenFacts facts = facts_of(path);
  poke(path, 100, "9");
  CHECK(contains(open_error(path), "damaged header"));
  fresh();
  const int64_t five = 5, three = 3, minus = -1, big = 6;
  const auto offset_poked = [&](int64_t index, const int64_t& value) {
    fresh();
    poke(path, facts.document_offsets_at + index * 8, std::string(reinterpret_cast<const char*>(&value), 8));
    return open_error(path);
  };
  CHECK(contains(offset_poked(0, three), "document_offsets[0]: expected 0, found 3"));
  CHECK(contains(offset_poked(1, minus),
                 "document_offsets[1]: expected 0 (the offset before it) to 5 (n_tokens), found -1"));
  CHECK(contains(offset_poked(1, big),
                 "document_offsets[1]: expected 0 (the offset before it) to 5 (n_tokens), found 6"));
  CHECK(contains(offset_poked(2, three), "document_offsets[2] (the last): expected n_tokens = 5, found 3"));
  CHECK(contains(offset_poked(1, five), "document_offsets: damaged: expected digest"));
  fresh();
  poke(path, facts.tokenizer_json_at, "[");
  CHECK(contains(open_error(path), "tokenizer_json: damaged"));

  fresh();  // a token: seen by verify(), and by read() when it leaves the range
  poke(path, facts.tokens_at + 2, std::string("\x07\x00", 2));
  CHECK_FALSE(TokenFile(path).verify());
  poke(path, facts.tokens_at + 2, std::string("\xe8\x03", 2));
  const TokenFile file(path);
  int32_t ids[5];
  CHECK(contains(error_of([&] { file.read(0, 5, ids); }), "tokens[1]: expected an id of 0 to 999, found 1000"));
}

TEST_CASE("negative ids of a wide file are refused") {
  const Scratch scratch;
  write_tokens(scratch / "t.h5", 100000, {{1, 2, 99999}});
  poke(scratch / "t.h5", facts_of(scratch / "t.h5").tokens_at, "\xff\xff\xff\xff");
  const TokenFile file(scratch / "t.h5");
  int32_t id = 0;
  CHECK(contains(error_of([&] { file.read(0, 1, &id); }), "tokens[0]: expected an id of 0 to 99999, found -1"));
}

TEST_CASE("every truncation of a token file is an error or leaves the facts whole") {
  const Scratch scratch;
  write_tokens(scratch / "t.h5", 1000, {{1, 2, 3}, {4, 999}});
  const std::string bytes = read_file(scratch / "t.h5");
  const TokenFacts facts = facts_of(scratch / "t.h5");
  const int64_t needed = std::max({facts.tokens_at + 10, facts.document_offsets_at + 24, facts.tokenizer_json_at + 18});
  for (int64_t size = 0; size < static_cast<int64_t>(bytes.size()); size += 61) {
    CAPTURE(size);
    const auto path = scratch.write("cut.h5", bytes.substr(0, static_cast<size_t>(size)));
    CHECK(open_error(path).empty() == (size >= needed));
  }
}

TEST_CASE("an empty corpus is an error and an abandoned writer leaves nothing") {
  const Scratch scratch;
  CHECK(contains(error_of([&] { write_tokens(scratch / "t.h5", 300, {}); }), "2 " + (scratch / "t.h5").string()));
  CHECK(contains(error_of([&] { write_tokens(scratch / "t.h5", 300, {{}, {}}); }), "empty corpus"));
  { TokenFileWriter(scratch / "t.h5", 300, "", "bytes").add_document({1, 2, 3}, 3); }
  CHECK(scratch.names().empty());
  CHECK(contains(error_of([&] { write_tokens(scratch / "no/such/t.h5", 300, {{1}}); }), "no/such/t.h5"));
  TokenFileWriter writer(scratch / "t.h5", 300, "", "bytes");
  CHECK_THROWS_AS(writer.add_document({300}, 1), CheckFailed);
  CHECK_THROWS_AS(writer.add_document({-1}, 1), CheckFailed);
}

TEST_CASE("a full disk names the path and leaves the old file") {
  const Scratch scratch;
  write_tokens(scratch / "t.h5", 300, {{1, 2, 3}});
  const std::string before = read_file(scratch / "t.h5");
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  // 3 MB: the spool fails; 200 kB: the spool (of which 1 MiB is buffered) holds, the HDF5 file fails.
  for (const rlim_t limit : {rlim_t{3'000'000}, rlim_t{600'000}, rlim_t{2000}}) {
    CAPTURE(limit);
    const rlimit small{limit, old_limit.rlim_max};
    const std::string error = error_of([&] {
      TokenFileWriter writer(scratch / "t.h5", 300, "{}", "bytes");
      setrlimit(RLIMIT_FSIZE, &small);
      const std::vector<int32_t> piece(100'000, 7);
      for (int i = 0; i < (limit > 1'000'000 ? 40 : 4); ++i) writer.add_document(piece, 1);
      writer.finish();
    });
    setrlimit(RLIMIT_FSIZE, &old_limit);
    CHECK(contains(error, "1 " + (scratch / "t.h5").string()));
    CHECK(scratch.names() == std::vector<std::string>{"t.h5"});
    CHECK(read_file(scratch / "t.h5") == before);
  }
  std::signal(SIGXFSZ, old_handler);
}
