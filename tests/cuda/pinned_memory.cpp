// The operands of the kernel tests lie in std::vector, and a GPU must reach them: here all of the program's memory
// comes from page-locked memory of the host, which kernels read and write where it lies. (Not managed memory: pages
// that move have hung machines, and tests are small.) What is allocated before open_pinned_memory() is ordinary.
//
// RANKWRIGHT_TEST_BLOCKS=own gives each allocation of 64 bytes or more a block of its own, in which compute-sanitizer
// sees an access past its end; slower.
#include "tests/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>

#include "kernels/cuda/error.h"

namespace {

constexpr size_t kBytes = size_t{1} << 30, kAlign = 64;

// Blocks of a few sizes (four for each power of two), which are kept when they are freed. Its own state is what an
// operator new may use: no containers.
class Pool {
 public:
  void open() {
    const char* blocks = std::getenv("RANKWRIGHT_TEST_BLOCKS");
    if (blocks != nullptr && std::string_view(blocks) == "own") {
      own_ = true;
      return;
    }
    void* begin = nullptr;
    RW_CUDA(cudaHostAlloc(&begin, kBytes, cudaHostAllocDefault));
    next_ = begin_ = static_cast<char*>(begin);
  }

  void* take(size_t bytes, size_t align) {
    if (own_ && bytes >= 64 && !inside_) {
      // CUDA allocates for itself meanwhile.
      inside_ = true;
      void* block = nullptr;
      const cudaError_t code = cudaHostAlloc(&block, bytes, cudaHostAllocDefault);
      inside_ = false;
      if (code != cudaSuccess) throw std::bad_alloc();
      return block;
    }
    if (begin_ == nullptr) return ordinary(bytes, align);
    const std::scoped_lock lock(mutex_);
    const size_t c = size_class(bytes);
    if (Free* block = free_[c]; block != nullptr) {
      free_[c] = block->next;
      return block;
    }
    const size_t rounded = class_bytes(c) + kAlign;
    if (static_cast<size_t>(next_ - begin_) + rounded > kBytes) throw std::bad_alloc();
    *reinterpret_cast<size_t*>(next_) = c;
    void* block = next_ + kAlign;
    next_ += rounded;
    return block;
  }
  void give(void* block) {
    if (own_ && !inside_) {
      cudaPointerAttributes where{};
      inside_ = true;
      const bool is_pinned = cudaPointerGetAttributes(&where, block) == cudaSuccess && where.type == cudaMemoryTypeHost;
      if (is_pinned) cudaFreeHost(block);
      inside_ = false;
      if (!is_pinned) std::free(block);
      return;
    }
    if (begin_ == nullptr || block < begin_ || block >= begin_ + kBytes) {
      std::free(block);
      return;
    }
    const std::scoped_lock lock(mutex_);
    auto* freed = static_cast<Free*>(block);
    const size_t c = *reinterpret_cast<size_t*>(static_cast<char*>(block) - kAlign);
    freed->next = free_[c];
    free_[c] = freed;
  }

 private:
  struct Free {
    Free* next;
  };
  static void* ordinary(size_t bytes, size_t align) {
    void* block = std::aligned_alloc(align, (bytes + align - 1) / align * align + (bytes == 0 ? align : 0));
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  // Class 4 p + q holds (4 + q) 2^p times kAlign bytes.
  static size_t class_bytes(size_t c) { return kAlign * ((4 + c % 4) << (c / 4)); }
  static size_t size_class(size_t bytes) {
    size_t c = 0;
    if (bytes > class_bytes(0)) c = 4 * (static_cast<size_t>(std::bit_width((bytes - 1) / class_bytes(0))) - 1);
    while (class_bytes(c) < bytes) ++c;
    return c;
  }

  std::mutex mutex_;
  char *begin_ = nullptr, *next_ = nullptr;
  bool own_ = false;
  std::array<Free*, 128> free_{};
  static thread_local bool inside_;
};
thread_local bool Pool::inside_ = false;

// Constant-initialised, and never destroyed: others allocate before and free after everything else of this program.
union Holder {
  constexpr Holder() : pool() {}
  ~Holder() {}
  Pool pool;
};
constinit Holder holder;

}  // namespace

namespace rw::test {
void open_pinned_memory() { holder.pool.open(); }
}  // namespace rw::test

void* operator new(size_t bytes) { return holder.pool.take(bytes, kAlign); }
void* operator new[](size_t bytes) { return holder.pool.take(bytes, kAlign); }
void* operator new(size_t bytes, std::align_val_t) { return holder.pool.take(bytes, kAlign); }
void* operator new[](size_t bytes, std::align_val_t) { return holder.pool.take(bytes, kAlign); }
void operator delete(void* block) noexcept { holder.pool.give(block); }
void operator delete[](void* block) noexcept { holder.pool.give(block); }
void operator delete(void* block, size_t) noexcept { holder.pool.give(block); }
void operator delete[](void* block, size_t) noexcept { holder.pool.give(block); }
void operator delete(void* block, std::align_val_t) noexcept { holder.pool.give(block); }
void operator delete[](void* block, std::align_val_t) noexcept { holder.pool.give(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { holder.pool.give(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { holder.pool.give(block); }
