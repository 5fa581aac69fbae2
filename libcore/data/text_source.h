// Text in: files and standard input, cut into documents, and long documents cut into pieces, so that a corpus larger
// than memory passes through.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

enum class TextFormat { by_suffix, text, jsonl };    // by_suffix: .jsonl and .ndjson are JSONL, all else is text
enum class DocumentRule { file, line, blank_line };  // what one document of a text file is

struct TextInput {
  std::vector<std::string> paths;  // "-" (at most once) is standard input
  TextFormat format = TextFormat::by_suffix;
  DocumentRule document = DocumentRule::file;
  int stdin_descriptor = 0;
  int64_t piece_bytes = 4 << 20;  // a longer document comes in pieces of about this size
};

// A document, or a piece of one. Of JSONL the text is the whole line still (see json_line_text).
struct TextPiece {
  std::string text;
  std::string where;                       // "corpus.txt", "corpus.jsonl:17"
  bool is_first = false, is_last = false;  // piece of its document
  bool is_json = false;
};

class TextSource {
 public:
  explicit TextSource(const TextInput& input);  // opens the first file; Error{usage|input}
  ~TextSource();
  bool next(TextPiece& piece);  // false at the end. Error{input} names the file. Skips empty documents.
  int64_t bytes_done() const;   // of the input
  int64_t bytes_total() const;  // -1 when standard input is no file

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The string under `key` of a JSONL line; Error{input} names file and line.
std::string json_line_text(const TextPiece& line, const std::string& key);

// Where to cut `text` (from its end backwards) so that encoding the halves apart gives the same ids as encoding the
// whole: before white space that follows an ASCII letter or digit. The pre-tokenizers of GPT-2, Llama 3 and Qwen2 all
// end a match there, whatever follows. Text without such a place is cut at the start of a line, or of a character: its
// ids may differ there.
size_t cut_place(std::string_view text);

}  // namespace rw
