// Memory that is closed to everybody but while its device works.
#pragma once
#include <cstddef>
#include <map>

namespace rw::simt {

// One reserved range of addresses, handed out in pieces. A touch while it is closed ends the process by SIGSEGV, after
// a line on stderr that says whose memory it was and where the touch came from.
class GuardedMemory {
 public:
  GuardedMemory();
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* allocate(size_t bytes);  // aligned to 256; null when the range is used up
  void release(void* piece, size_t bytes);
  // In pairs, which nest.
  void open();
  void close();

 private:
  void protect(size_t begin, size_t end) const;

  void* map_ = nullptr;
  char* base_ = nullptr;  // of the range in it
  size_t used_ = 0;       // what of the range was ever handed out, in whole pages
  size_t slot_ = 0;       // in the table that the signal's handler reads
  int open_ = 0;
  std::map<size_t, size_t> free_ = {};  // offset and size of what was given back, and the last page's rest
};

}  // namespace rw::simt
