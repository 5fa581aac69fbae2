#include "libcore/data/duplicates.h"

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"

namespace rw {
namespace {

constexpr int64_t kPiece = 1 << 16;  // tokens at a time: a document may be a whole book

struct Entry {
  uint64_t digest;
  int64_t document;
};

class Documents {
 public:
  explicit Documents(const TokenFile& file) : file_(file), a_(kPiece), b_(kPiece) {}
  int64_t size(int64_t d) const { return file_.document_offset(d + 1) - file_.document_offset(d); }

  uint64_t digest(int64_t d) {
    StreamHash hash;
    const int64_t begin = file_.document_offset(d), n = size(d);
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t count = std::min(kPiece, n - i);
      file_.read(begin + i, count, a_.data());
      hash.update(a_.data(), count * 4);
    }
    return hash.digest();
  }

  bool equal(int64_t x, int64_t y) {
    const int64_t n = size(x);
    if (size(y) != n) return false;
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t count = std::min(kPiece, n - i);
      file_.read(file_.document_offset(x) + i, count, a_.data());
      file_.read(file_.document_offset(y) + i, count, b_.data());
      if (!std::equal(a_.begin(), a_.begin() + count, b_.begin())) return false;
    }
    return true;
  }

 private:
  const TokenFile& file_;
  std::vector<int32_t> a_, b_;
};

bool is_before(const DuplicateReport::Pair& a, const DuplicateReport::Pair& b) { return a.document < b.document; }

}  // namespace

DuplicateReport find_duplicates(const TokenFile& file, int64_t max_pairs) {
  DuplicateReport report;
  report.n_documents = file.n_documents();
  report.n_tokens = file.n_tokens();
  Documents documents(file);
  std::vector<Entry> entries;
  for (int64_t d = 0; d < report.n_documents; ++d)
    if (documents.size(d) > 0) entries.push_back({documents.digest(d), d});
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.digest != b.digest ? a.digest < b.digest : a.document < b.document;
  });

  std::vector<int64_t> distinct;  // of one digest: the first of each content
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i == 0 || entries[i].digest != entries[i - 1].digest) distinct.clear();
    const int64_t d = entries[i].document;
    const auto same =
        std::find_if(distinct.begin(), distinct.end(), [&](int64_t earlier) { return documents.equal(earlier, d); });
    if (same == distinct.end()) {
      distinct.push_back(d);
      continue;
    }
    ++report.n_duplicates;
    report.duplicate_tokens += documents.size(d);
    // A heap with the latest on top keeps the first max_pairs, whatever order the digests come in.
    report.first_pairs.push_back({d, *same});
    std::push_heap(report.first_pairs.begin(), report.first_pairs.end(), is_before);
    if (static_cast<int64_t>(report.first_pairs.size()) > max_pairs) {
      std::pop_heap(report.first_pairs.begin(), report.first_pairs.end(), is_before);
      report.first_pairs.pop_back();
    }
  }
  std::sort_heap(report.first_pairs.begin(), report.first_pairs.end(), is_before);
  return report;
}

std::string duplicates_text(const DuplicateReport& r) {
  if (r.n_duplicates == 0) return fmt::format("no duplicate among {} documents", r.n_documents);
  std::string text =
      fmt::format("{} of {} documents are exact copies of earlier ones ({:.3g} % of the tokens):", r.n_duplicates,
                  r.n_documents, 100 * r.token_share());
  for (const DuplicateReport::Pair& pair : r.first_pairs) text += fmt::format(" {} = {},", pair.document, pair.earlier);
  text.pop_back();
  if (static_cast<int64_t>(r.first_pairs.size()) < r.n_duplicates) text += ", ...";
  return text;
}

}  // namespace rw
