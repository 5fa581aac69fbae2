#include "libcore/text/tokenizer.h"

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/text/bpe_tokenizer.h"
#include "libcore/text/tokenizer_json.h"

namespace rw {

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  for (const int32_t id : ids) text += token_bytes(id);
  return text;
}

std::string Tokenizer::identity() const {
  return json() == byte_tokenizer_json() ? "bytes" : "bpe-" + hex64(hash64(json()));
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& where) {
  if (json == byte_tokenizer_json()) return byte_tokenizer();
  return make_bpe_tokenizer(read_tokenizer_json(json, where), std::string(json), where);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  if (path == "bytes") return byte_tokenizer();
  std::filesystem::path file = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    file = path / "tokenizer.json";
    if (!std::filesystem::exists(file, ignored) && std::filesystem::exists(path / "tokenizer.model", ignored)) {
      fail(ErrorKind::input,
           "{}: expected a tokenizer.json, found only a tokenizer.model (SentencePiece), which is not supported",
           path.string());
    }
  }
  if (!std::filesystem::exists(file, ignored)) {
    fail(ErrorKind::input,
         "tokenizer {}: no such file; expected \"bytes\", a tokenizer.json or a directory that holds one",
         file.string());
  }
  return parse_tokenizer(read_file(file), file.string());
}

}  // namespace rw
