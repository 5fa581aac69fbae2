#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/data/spool.h"
#include "libcore/data/token_file.h"
#include "libcore/data/token_hdf5.h"

namespace rw {
namespace {

// The file under construction; removed unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const std::filesystem::path& target)
      : path_(target.string() + ".tmp" + std::to_string(::getpid())) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (fd_ >= 0) ::close(fd_);
    ::unlink(path_.c_str());  // after the rename there is nothing of this name
  }
  const std::filesystem::path& path() const { return path_; }
  int open(const std::filesystem::path& target) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (fd_ < 0) fail(ErrorKind::runtime, "{}: cannot be opened again: {}", target.string(), std::strerror(errno));
    return fd_;
  }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace

struct TokenFileWriter::Impl {
  std::filesystem::path path;
  TokenFacts facts;
  std::string tokenizer_json;
  Spool tokens, offsets;
  StreamHash tokens_hash, offsets_hash;
  std::vector<uint16_t> narrow;
  int64_t max_token = 0, document_begin = 0;
  bool is_finished = false;

  explicit Impl(const std::filesystem::path& file) : path(file), tokens(file), offsets(file) {}

  void put(Spool& spool, StreamHash& hash, const void* data, int64_t bytes) {
    spool.append(data, bytes);
    hash.update(data, bytes);
  }

  void check_tokens(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      CHECK(id >= 0 && id < facts.vocab_size, "token %d of a vocabulary of %ld", id,
            static_cast<long>(facts.vocab_size));
      max_token = std::max(max_token, int64_t{id});
    }
  }
};

TokenFileWriter::TokenFileWriter(const std::filesystem::path& file, int64_t vocab_size,
                                 const std::string& tokenizer_json, const std::string& tokenizer_identity)
    : impl_(std::make_unique<Impl>(file)) {
  CHECK(vocab_size > 0 && vocab_size <= INT32_MAX, "vocabulary of %ld", static_cast<long>(vocab_size));
  TokenFacts& f = impl_->facts;
  f.vocab_size = vocab_size;
  f.token_type = vocab_size <= 65536 ? "u16" : "i32";
  f.tokenizer = tokenizer_identity;
  f.tokenizer_digest = hex64(hash64(tokenizer_json));
  f.tokenizer_json_bytes = static_cast<int64_t>(tokenizer_json.size());
  impl_->tokenizer_json = tokenizer_json;
  impl_->put(impl_->offsets, impl_->offsets_hash, &f.n_tokens, 8);
}

TokenFileWriter::~TokenFileWriter() = default;

void TokenFileWriter::append(const std::vector<int32_t>& ids, int64_t text_bytes) {
  Impl& w = *impl_;
  w.check_tokens(ids);
  const int64_t n = static_cast<int64_t>(ids.size());
  if (w.facts.token_type == "u16") {
    w.narrow.assign(ids.begin(), ids.end());
    w.put(w.tokens, w.tokens_hash, w.narrow.data(), n * 2);
  } else {
    w.put(w.tokens, w.tokens_hash, ids.data(), n * 4);
  }
  w.facts.n_tokens += n;
  w.facts.n_bytes += text_bytes;
}

void TokenFileWriter::end_document() {
  impl_->put(impl_->offsets, impl_->offsets_hash, &impl_->facts.n_tokens, 8);
  impl_->document_begin = impl_->facts.n_tokens;
  ++impl_->facts.n_documents;
}

void TokenFileWriter::add_document(const std::vector<int32_t>& ids, int64_t text_bytes) {
  append(ids, text_bytes);
  end_document();
}

void TokenFileWriter::finish() {
  Impl& w = *impl_;
  CHECK(!w.is_finished && w.document_begin == w.facts.n_tokens, "finish() twice, or inside a document");
  if (w.facts.n_tokens == 0)
    fail(ErrorKind::input, "{}: expected at least one token, found an empty corpus", w.path.string());
  w.facts.max_token = w.max_token;
  w.facts.fingerprint = hex64(w.tokens_hash.digest()) + hex64(w.offsets_hash.digest());
  Temporary temporary(w.path);
  const int64_t structure_bytes = 64 << 10;  // HDF5's own, generously
  check_room(temporary.path(), w.tokens.size() + w.offsets.size() + w.facts.tokenizer_json_bytes + structure_bytes,
             w.path);
  create_token_hdf5(temporary.path(), w.facts);
  const int fd = temporary.open(w.path);
  w.tokens.copy_to(fd, w.facts.tokens_at);
  w.offsets.copy_to(fd, w.facts.document_offsets_at);
  write_all(fd, w.tokenizer_json.data(), w.facts.tokenizer_json_bytes, w.facts.tokenizer_json_at, w.path);
  write_all(fd, encode_header(w.facts).data(), kTokenHeaderBytes, 0, w.path);
  if (::fsync(fd) != 0) fail(ErrorKind::runtime, "{}: cannot be synced: {}", w.path.string(), std::strerror(errno));
  if (::rename(temporary.path().c_str(), w.path.c_str()) != 0)
    fail(ErrorKind::runtime, "{}: cannot be put in place: {}", w.path.string(), std::strerror(errno));
  fsync_path(w.path.has_parent_path() ? w.path.parent_path() : std::filesystem::path("."));
  w.is_finished = true;
}

int64_t TokenFileWriter::n_tokens() const { return impl_->facts.n_tokens; }
int64_t TokenFileWriter::n_documents() const { return impl_->facts.n_documents; }
int64_t TokenFileWriter::n_bytes() const { return impl_->facts.n_bytes; }
const std::string& TokenFileWriter::fingerprint() const { return impl_->facts.fingerprint; }

}  // namespace rw
