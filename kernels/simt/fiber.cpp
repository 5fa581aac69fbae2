// On x86-64 a switch is a dozen instructions; elsewhere ucontext does it, with a system call each way.
#include "kernels/simt/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void* save, const void** bottom, size_t* size);
extern "C" void __asan_unpoison_memory_region(const volatile void* at, size_t bytes);
#endif

namespace rw::simt {
namespace {

// Stacks that no fiber has now. Untouched pages of a stack cost nothing; the page below it is closed.
struct StackPool {
  std::vector<void*> free;
  ~StackPool() {
    for (void* stack : free) ::munmap(static_cast<char*>(stack) - kGuard, kStackBytes + kGuard);
  }
  static constexpr size_t kGuard = 4096;
  void* take() {
    if (!free.empty()) {
      void* stack = free.back();
      free.pop_back();
      return stack;
    }
    void* map = ::mmap(nullptr, kStackBytes + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    ::mprotect(map, kGuard, PROT_NONE);
    return static_cast<char*>(map) + kGuard;
  }
};
thread_local StackPool stack_pool;

}  // namespace

#if defined(__x86_64__)
// Callee-saved registers of the System V ABI (3.2.1), then the stack pointer. The control words of the floating-point
// units are left alone: kernels do not change them.
extern "C" void rw_simt_switch(void** save, void* load);
__asm__(R"(
.text
.type rw_simt_switch,@function
rw_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rw_simt_switch,.-rw_simt_switch
)");
extern "C" void rw_simt_first_step();
// The new stack begins with the fiber in a saved register.
__asm__(R"(
.text
.type rw_simt_first_step,@function
rw_simt_first_step:
  movq %rbx, %rdi
  call *%r12
  ud2
.size rw_simt_first_step,.-rw_simt_first_step
)");
#endif

void make_stack_pool() { stack_pool.free.reserve(1024); }

Fiber::~Fiber() {
  if (stack_ != nullptr) stack_pool.free.push_back(stack_);
#if !defined(__x86_64__)
  delete static_cast<ucontext_t*>(context_);
  delete static_cast<ucontext_t*>(scheduler_);
#endif
}

void Fiber::first_step(Fiber* fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber->scheduler_bottom_, &fiber->scheduler_size_);
#endif
  fiber->entry_(fiber->argument_);
  std::abort();  // entry ends with finish(), and nobody resumes a finished fiber
}

void Fiber::start(void (*entry)(void*), void* argument) {
  if (stack_ == nullptr) stack_ = stack_pool.take();
  entry_ = entry;
  argument_ = argument;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kStackBytes);  // frames that were left by an exception, or not at all
#endif
#if defined(__x86_64__)
  // As rw_simt_switch leaves a stack: r15, r14, r13, r12, rbx, rbp, return address. When the last is popped the
  // stack pointer is a multiple of 16.
  auto* top = reinterpret_cast<void**>(static_cast<char*>(stack_) + kStackBytes) - 3;
  *top = reinterpret_cast<void*>(&rw_simt_first_step);
  void** saved = top - 6;
  saved[0] = saved[1] = saved[2] = nullptr;
  saved[3] = reinterpret_cast<void*>(&Fiber::first_step);  // r12
  saved[4] = this;                                         // rbx
  saved[5] = nullptr;
  context_ = saved;
#else
  auto* context = new ucontext_t;
  ::getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  const auto bits = reinterpret_cast<uintptr_t>(this);
  void (*begin)(unsigned, unsigned) = [](unsigned low, unsigned high) {
    first_step(reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low));
  };
  ::makecontext(context, reinterpret_cast<void (*)()>(begin), 2, static_cast<unsigned>(bits),
                static_cast<unsigned>(bits >> 32));
  delete static_cast<ucontext_t*>(std::exchange(context_, context));
  if (scheduler_ == nullptr) scheduler_ = new ucontext_t;
#endif
}

void Fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, stack_, kStackBytes);
#endif
#if defined(__x86_64__)
  rw_simt_switch(&scheduler_, context_);
#else
  ::swapcontext(static_cast<ucontext_t*>(scheduler_), static_cast<ucontext_t*>(context_));
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::leave([[maybe_unused]] bool for_ever) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_stack_, scheduler_bottom_, scheduler_size_);
#endif
#if defined(__x86_64__)
  rw_simt_switch(&context_, scheduler_);
#else
  ::swapcontext(static_cast<ucontext_t*>(context_), static_cast<ucontext_t*>(scheduler_));
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &scheduler_bottom_, &scheduler_size_);
#endif
}

void Fiber::suspend() { leave(false); }
void Fiber::finish() { leave(true); }

}  // namespace rw::simt
