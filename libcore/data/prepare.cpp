#include "libcore/data/prepare.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/data/spool.h"
#include "libcore/data/text_source.h"
#include "libcore/data/token_file.h"
#include "libcore/text/tokenizer.h"

namespace rw {
namespace {

using Progress = std::function<void(const PrepareProgress&)>;

TextInput input_of(const PrepareSpec& spec) {
  TextInput input;
  input.paths = spec.input;
  input.format = spec.format == "text"    ? TextFormat::text
                 : spec.format == "jsonl" ? TextFormat::jsonl
                                          : TextFormat::by_suffix;
  input.document = spec.document == "line"         ? DocumentRule::line
                   : spec.document == "blank-line" ? DocumentRule::blank_line
                                                   : DocumentRule::file;
  input.stdin_descriptor = spec.stdin_descriptor;
  input.piece_bytes = spec.piece_bytes;
  return input;
}

void check_spec(const PrepareSpec& spec) {
  if (spec.input.empty())
    fail(ErrorKind::usage, "--input: expected at least one file (or - for standard input), found none");
  if (spec.output.empty())
    fail(ErrorKind::usage, "--output: expected the token file to write, such as corpus.h5, found none");
  if (spec.tokenizer.empty() == (spec.train_bpe == 0))
    fail(ErrorKind::usage, "expected one of --tokenizer bytes|PATH and --train-bpe N, found {}",
         spec.train_bpe == 0 ? "neither" : "both");
  if (spec.train_bpe_bytes > 0 && spec.train_bpe_bytes < 65536)
    fail(ErrorKind::usage, "--train-bpe-bytes: expected 0 (all) or at least 64Ki, found {}", spec.train_bpe_bytes);
  const std::filesystem::path output(spec.output);
  const auto folder = output.has_parent_path() ? output.parent_path() : std::filesystem::path(".");
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    fail(ErrorKind::usage, "--output {}: its folder does not exist; make it first", spec.output);
  if (std::filesystem::is_directory(output, ignored))
    fail(ErrorKind::usage, "--output {}: expected a file, found a directory", spec.output);
  for (const std::string& path : spec.input)
    if (path != "-" && std::filesystem::equivalent(path, output, ignored))
      fail(ErrorKind::usage, "--output {}: is also an input; choose another name", spec.output);
}

// Learning a tokenizer reads the input twice; a pipe can be read once.
void refuse_pipes(const PrepareSpec& spec) {
  for (const std::string& path : spec.input) {
    std::error_code ignored;
    if (path != "-" && std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
      fail(ErrorKind::input,
           "{}: expected a regular file, which --train-bpe reads twice; give a pipe as --input - instead", path);
  }
}

// Two passes over standard input need a copy of it.
std::unique_ptr<Spool> spool_stdin(const PrepareSpec& spec, const Progress& progress) {
  auto spool = std::make_unique<Spool>(spec.output);
  std::vector<char> buffer(1 << 20);
  while (true) {
    const ssize_t n = ::read(spec.stdin_descriptor, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorKind::input, "standard input: cannot be read: {}", std::strerror(errno));
    if (n == 0) break;
    spool->append(buffer.data(), n);
    progress({"reading", spool->size()});
  }
  spool->flush();
  return spool;
}

std::string learn_bpe(const PrepareSpec& spec, const Progress& progress) {
  TextSource source(input_of(spec));
  BpeTrainer trainer(spec.train_bpe);
  const int64_t total = source.bytes_total();
  const double share = spec.train_bpe_bytes > 0 && total > spec.train_bpe_bytes
                           ? static_cast<double>(spec.train_bpe_bytes) / static_cast<double>(total)
                           : 1.0;
  // `due` bytes may be taken so far. A piece is taken whole once they cover it, else from its beginning; not below
  // kLeast, so that short documents stay whole.
  constexpr double kLeast = 4096;
  double due = 0;
  for (TextPiece piece; source.next(piece);) {
    const double size = static_cast<double>(piece.text.size());
    due += share * size;
    progress({"counting words", source.bytes_done(), total});
    if (share < 1 && due < std::min(size, kLeast)) continue;
    std::string text = piece.is_json ? json_line_text(piece, spec.field) : std::move(piece.text);
    const double part = share < 1 ? std::min(1.0, due / size) : 1.0;
    if (part < 1)
      text.resize(
          cut_place(std::string_view(text).substr(0, static_cast<size_t>(part * static_cast<double>(text.size())))));
    due -= part * size;
    trainer.add(text);
  }
  progress({"learning merges", total, total});
  return trainer.finish();
}

// A batch of pieces, encoded by several threads, in order.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, const PrepareSpec& spec)
      : tokenizer_(tokenizer),
        field_(spec.field),
        specials_(spec.special_tokens == "text" ? Tokenizer::Specials::as_text : Tokenizer::Specials::match),
        n_threads_(spec.threads > 0 ? spec.threads : std::max(1u, std::thread::hardware_concurrency())) {}

  struct Result {
    std::vector<int32_t> ids;
    int64_t text_bytes = 0;
    std::exception_ptr error;
  };

  int64_t n_threads() const { return n_threads_; }

  const std::vector<Result>& encode(const std::vector<TextPiece>& pieces) {
    results_.resize(pieces.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < pieces.size(); i = next++) encode_one(pieces[i], results_[i]);
    };
    std::vector<std::jthread> helpers;
    const size_t n_helpers = std::min(static_cast<size_t>(n_threads_), pieces.size()) - 1;
    for (size_t t = 0; t < n_helpers; ++t) helpers.emplace_back(work);
    work();
    helpers.clear();  // joins
    for (const Result& r : results_)
      if (r.error) std::rethrow_exception(r.error);
    return results_;
  }

 private:
  void encode_one(const TextPiece& piece, Result& result) const {
    result.ids.clear();
    result.error = nullptr;
    try {
      std::string extracted;
      if (piece.is_json) extracted = json_line_text(piece, field_);
      const std::string_view text = piece.is_json ? extracted : piece.text;
      result.text_bytes = static_cast<int64_t>(text.size());
      if (text.empty() && piece.is_first && piece.is_last) return;
      const TextTemplate& around = tokenizer_.text_template();
      if (piece.is_first) result.ids = around.before;
      tokenizer_.encode(text, result.ids, specials_);
      if (piece.is_last) {
        result.ids.insert(result.ids.end(), around.after.begin(), around.after.end());
        const int32_t end = tokenizer_.end_of_text();
        if (end >= 0 && (around.after.empty() || around.after.back() != end)) result.ids.push_back(end);
      }
    } catch (...) {
      result.error = std::current_exception();
    }
  }

  const Tokenizer& tokenizer_;
  std::string field_;
  Tokenizer::Specials specials_;
  int64_t n_threads_;
  std::vector<Result> results_;
};

void encode_all(const PrepareSpec& spec, const Tokenizer& tokenizer, TokenFileWriter& writer,
                const Progress& progress) {
  TextSource source(input_of(spec));
  Encoder encoder(tokenizer, spec);
  const int64_t batch_bytes = encoder.n_threads() * std::max<int64_t>(1, spec.piece_bytes / 2);
  bool is_open = true;
  std::vector<TextPiece> batch;
  while (is_open) {
    batch.clear();
    for (int64_t bytes = 0; bytes < batch_bytes && is_open;) {
      TextPiece piece;
      is_open = source.next(piece);
      if (!is_open) break;
      bytes += static_cast<int64_t>(piece.text.size());
      batch.push_back(std::move(piece));
    }
    if (batch.empty()) break;
    const auto& results = encoder.encode(batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (results[i].ids.empty() && batch[i].is_first && batch[i].is_last) continue;  // no text: no document
      writer.append(results[i].ids, results[i].text_bytes);
      if (batch[i].is_last) writer.end_document();
    }
    progress({"encoding", source.bytes_done(), source.bytes_total(), writer.n_tokens()});
  }
}

}  // namespace

FieldList fields(PrepareSpec& s) {
  FieldList list = {
      {"input", &s.input, "text or JSONL files; - is standard input; repeat for more"},
      {"output", &s.output, "token file to write; replaced only when the new one is complete"},
      {"tokenizer", &s.tokenizer, "bytes, a Hugging Face tokenizer.json, or a directory that holds one"},
      {"train-bpe", &s.train_bpe,
       "learn a byte-level BPE of this many tokens from the input; written beside the output (corpus.h5: "
       "corpus.tokenizer.json)"},
      {"train-bpe-bytes", &s.train_bpe_bytes,
       "learn it from at most so many bytes of the input, taken evenly; 0: from all"},
      {"format",
       &s.format,
       "what the input is; auto: JSONL where the name ends in .jsonl or .ndjson, else text",
       {"auto", "text", "jsonl"}},
      {"field", &s.field, "JSONL key that holds the text"},
      {"document", &s.document, "what one document of a text file is", {"file", "line", "blank-line"}},
      {"special-tokens",
       &s.special_tokens,
       "what <|endoftext|> and the like in the text are: match (the special token) or text",
       {"match", "text"}},
      {"threads", &s.threads, "threads that encode; 0: one per core"},
  };
  for (Field& f : list) {
    f.group = "Prepare";
    f.is_size = f.name == "train-bpe-bytes" || f.name == "train-bpe";
    if (std::holds_alternative<int64_t*>(f.value)) f.min = 0;
  }
  return list;
}

FieldList fields(PrepareReport& r) {
  return {{"output", &r.output, "token file"},
          {"documents", &r.documents, "documents"},
          {"bytes", &r.bytes, "bytes of text"},
          {"tokens", &r.tokens, "tokens"},
          {"bytes-per-token", &r.bytes_per_token, "bytes of text a token"},
          {"vocab-size", &r.vocab_size, "tokenizer's largest id + 1"},
          {"tokenizer", &r.tokenizer, "tokenizer's identity"},
          {"tokenizer-file", &r.tokenizer_file, "where the learned tokenizer is"},
          {"fingerprint", &r.fingerprint, "digests of tokens and document offsets"},
          {"seconds", &r.seconds, "wall time"}};
}

std::string trained_tokenizer_path(const std::string& output) {
  return std::filesystem::path(output).replace_extension(".tokenizer.json").string();
}

PrepareReport prepare(const PrepareSpec& given, const Progress& progress) {
  const double start = now_s();
  PrepareSpec spec = given;
  check_spec(spec);
  PrepareReport report;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Spool> stdin_copy;
  if (spec.train_bpe > 0) {
    refuse_pipes(spec);
    if (std::find(spec.input.begin(), spec.input.end(), "-") != spec.input.end()) {
      stdin_copy = spool_stdin(spec, progress);
      spec.stdin_descriptor = stdin_copy->descriptor();
    }
    report.tokenizer_file = trained_tokenizer_path(spec.output);
    tokenizer = parse_tokenizer(learn_bpe(spec, progress), report.tokenizer_file);
    if (stdin_copy != nullptr) stdin_copy->rewind();
  } else {
    tokenizer = spec.tokenizer == "bytes" ? byte_tokenizer() : load_tokenizer(spec.tokenizer);
  }
  TokenFileWriter writer(spec.output, tokenizer->vocab_size(), tokenizer->json(), tokenizer->identity());
  encode_all(spec, *tokenizer, writer, progress);
  if (writer.n_tokens() == 0)
    fail(ErrorKind::input, "{}: expected some text, found none: the corpus is empty", spec.input.front());
  progress({"writing", 0, -1, writer.n_tokens()});
  writer.finish();
  if (!report.tokenizer_file.empty()) write_file_atomic(report.tokenizer_file, tokenizer->json());

  report.output = spec.output;
  report.documents = writer.n_documents();
  report.bytes = writer.n_bytes();
  report.tokens = writer.n_tokens();
  report.bytes_per_token = static_cast<double>(report.bytes) / static_cast<double>(report.tokens);
  report.vocab_size = tokenizer->vocab_size();
  report.tokenizer = tokenizer->identity();
  report.fingerprint = writer.fingerprint();
  report.seconds = now_s() - start;
  return report;
}

}  // namespace rw
