// Files on their way between ranks: messages straight from one file's pages into the other's, without buffers of our
// own. Both ends are made first and started when the ranks agree that nothing failed: a message whose peer gave up
// would keep its memory for ever.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "libcore/base/files.h"
#include "libcore/comm/comm.h"

namespace rw {

// A whole file, sent to a peer that receives it with an IncomingFile.
class OutgoingFile {
 public:
  // Error{input} when the file cannot be read.
  OutgoingFile(const std::filesystem::path& file, Comm& comm, int peer);
  void start();
  bool done();                                         // moves on, does not wait
  size_t pending() const { return requests_.size(); }  // messages
  void wait();                                         // Error{runtime} names the peer after the communicator's timeout

 private:
  MappedFile map_;
  Comm& comm_;
  int peer_;
  std::vector<Request> requests_;
};

class IncomingFile {
 public:
  // Creates the file with room for `bytes`. Error{runtime} names file, bytes and cause.
  IncomingFile(const std::filesystem::path& file, int64_t bytes, Comm& comm, int peer);
  IncomingFile(const IncomingFile&) = delete;
  IncomingFile& operator=(const IncomingFile&) = delete;
  ~IncomingFile();
  void start();
  bool done();
  size_t pending() const { return requests_.size(); }
  void wait();

 private:
  Comm& comm_;
  int peer_;
  void* data_ = nullptr;
  int64_t bytes_;
  std::vector<Request> requests_;
};

}  // namespace rw
