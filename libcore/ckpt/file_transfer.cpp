#include "libcore/ckpt/file_transfer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>

#include "libcore/base/error.h"
#include "libcore/base/os_error.h"

namespace rw {
namespace {

constexpr int64_t kMessageBytes = int64_t{64} << 20;
constexpr int kTag = 7301;

std::vector<Request> in_messages(int64_t bytes, const std::function<Request(int64_t at, int64_t n)>& start) {
  std::vector<Request> requests;
  for (int64_t at = 0; at < bytes; at += kMessageBytes)
    requests.push_back(start(at, std::min(kMessageBytes, bytes - at)));
  return requests;
}

bool all_done(Comm& comm, std::vector<Request>& requests) {
  comm.progress();
  std::erase_if(requests, [&](Request r) { return comm.done(r); });
  return requests.empty();
}

void wait_for_all(Comm& comm, std::vector<Request>& requests) {
  for (const Request& r : requests) comm.wait(r);
  requests.clear();
}

}  // namespace

OutgoingFile::OutgoingFile(const std::filesystem::path& file, Comm& comm, int peer)
    : map_(file), comm_(comm), peer_(peer) {}
void OutgoingFile::start() {
  requests_ = in_messages(map_.size(),
                          [&](int64_t at, int64_t n) { return comm_.send_start(map_.data() + at, n, peer_, kTag); });
}
bool OutgoingFile::done() { return all_done(comm_, requests_); }
void OutgoingFile::wait() { wait_for_all(comm_, requests_); }

IncomingFile::IncomingFile(const std::filesystem::path& file, int64_t bytes, Comm& comm, int peer)
    : comm_(comm), peer_(peer), bytes_(bytes) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) os_failed(file, "creating it", errno);
  // Room first: a full disk is an error here, and not a signal when the pages are written.
  int error = bytes > 0 ? ::posix_fallocate(fd, 0, bytes) : 0;
  if (error == 0 && bytes > 0) {
    data_ = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data_ == MAP_FAILED) error = errno, data_ = nullptr;
  }
  ::close(fd);
  if (error != 0) os_failed(file, fmt::format("reserving {} bytes", bytes), error);
}
void IncomingFile::start() {
  requests_ = in_messages(
      bytes_, [&](int64_t at, int64_t n) { return comm_.recv_start(static_cast<char*>(data_) + at, n, peer_, kTag); });
}
IncomingFile::~IncomingFile() {
  // A receive that is still under way keeps its memory: the process is on its way out.
  if (data_ != nullptr && requests_.empty()) ::munmap(data_, static_cast<size_t>(bytes_));
}
bool IncomingFile::done() { return all_done(comm_, requests_); }
void IncomingFile::wait() { wait_for_all(comm_, requests_); }

}  // namespace rw
