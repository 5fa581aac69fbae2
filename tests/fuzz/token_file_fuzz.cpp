// A token file: any bytes are either refused with an Error or open as a file all of whose tokens, documents and samples
// can be read. Bytes that begin with "{" stand for a file whose header is that line, under a valid digest, with the
// rest behind it: so mutants get past the digest that would stop nearly all of them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/data/data_order.h"
#include "libcore/data/duplicates.h"
#include "libcore/data/token_file.h"
#include "libcore/data/token_header.h"

namespace {

using namespace rw;

std::string with_header(std::string_view bytes) {
  if (bytes.empty() || bytes[0] != '{') return std::string(bytes);
  const size_t line_end = std::min(bytes.find('\n'), bytes.size());
  std::string body(bytes.substr(0, line_end));
  body.resize(static_cast<size_t>(kTokenHeaderBytes) - 26, '\0');
  return "RWTOKENS " + hex64(hash64(body)) + "\n" + body +
         std::string(bytes.substr(std::min(line_end + 1, bytes.size())));
}

void use(const std::shared_ptr<const TokenFile>& file) {
  const int64_t n = file->n_tokens();
  for (int64_t d = 0; d < file->n_documents(); ++d)
    if (file->document_offset(d) > file->document_offset(d + 1) || file->document_offset(d + 1) > n) std::abort();
  (void)file->verify();
  std::vector<int32_t> ids(static_cast<size_t>(n));
  file->read(0, n, ids.data());
  if (*std::max_element(ids.begin(), ids.end()) >= file->vocab_size() || *std::min_element(ids.begin(), ids.end()) < 0)
    std::abort();
  (void)find_duplicates(*file, 3);
  const DataOrder order({{file, 0, n}}, 3, 1);
  int32_t input[3], target[3];
  for (int64_t sample = 0; sample < 8; ++sample) order.read(sample, input, target);
}

}  // namespace

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  const std::string bytes = with_header({reinterpret_cast<const char*>(data), size});
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  try {
    use(std::make_shared<const TokenFile>("/proc/self/fd/" + std::to_string(fd)));
  } catch (const Error&) {
    // The answer to bytes that are no token file.
  }
  close(fd);
}
