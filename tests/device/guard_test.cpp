// The simulator's guard: what would go unseen because its device memory is the host's is seen.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "kernels/simt/runtime.cuh"
#include "libcore/base/error.h"
#include "libcore/device/arena.h"
#include "libcore/device/device.h"
#include "tests/device/messages.h"

namespace rw {
namespace {

using test::holds;

struct Guarded {
  Guarded() {
    std::signal(SIGSEGV, SIG_DFL);  // a child that dies is not to be reported by the test program's own handler
    simt::set_guard(true);
  }
  ~Guarded() {
    arena.reset();
    device.reset();
    simt::set_guard(false);
  }
  std::unique_ptr<Device> device;
  std::unique_ptr<Arena> arena;
  void open() {
    device = open_device({.device = "cuda"});
    arena = std::make_unique<Arena>(device->memory());
  }
  const Ops& ops() const { return device->ops(); }
  Stream stream() const { return device->stream(); }
};

struct Death {
  int signal = 0;
  std::string text;  // of its standard error
};
// Of a child that does `f`.
Death death_of(const std::function<void()>& f) {
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    f();
    ::_exit(0);
  }
  ::close(ends[1]);
  Death death;
  char buffer[512];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    death.text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  death.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return death;
}
template <class F>
std::string failure(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("guard: a host that reads or writes device memory crashes, saying so") {
  Guarded g;
  g.open();
  auto* x = g.arena->take_n<float>(100, MemoryOwner::weights);
  volatile float* touched = x;
  const Death reads = death_of([&] { ::_exit(touched[50] == 0 ? 0 : 1); });
  CHECK(reads.signal == SIGSEGV);
  CHECK(holds(reads.text, "simt guard: the host touched device memory at 0x"));
  CHECK(holds(reads.text, "by the ops Read and Upload alone"));
  CHECK(death_of([&] { touched[50] = 1; }).signal == SIGSEGV);
  // After work too, and a crash elsewhere is no affair of the guard's.
  g.ops().zero({.y = x, .bytes = 400}, g.stream());
  g.device->wait();
  CHECK(death_of([&] { ::_exit(touched[50] == 0 ? 0 : 1); }).signal == SIGSEGV);
  const volatile uintptr_t nowhere = 16;  // volatile: the compiler must not see where that is
  const Death elsewhere = death_of([&] { *reinterpret_cast<volatile int*>(nowhere) = 1; });
  CHECK(elsewhere.signal == SIGSEGV);
  CHECK(elsewhere.text.find("simt guard") == std::string::npos);
  // What it should have done.
  float got = 1;
  g.ops().read({.host = &got, .device = x + 50, .n = 1, .t = DType::f32}, g.stream());
  CHECK(got == 0);
}

TEST_CASE("guard: a host pointer handed to an op is refused where the op is called") {
  Guarded g;
  g.open();
  auto* x = g.arena->take_n<float>(100, MemoryOwner::weights);
  std::vector<float> host(100);
  const auto refused = [&](const std::function<void()>& f, const char* text) {
    CHECK(holds(failure(f), text));
    g.device->wait();  // nothing was put on the stream
  };
  refused([&] { g.ops().add({.y = x, .a = x, .b = host.data(), .n = 100, .t = DType::f32}, g.stream()); },
          "device memory: add: b lies in the host's memory: upload it");
  refused([&] { g.ops().add({.y = host.data(), .a = x, .b = x, .n = 100, .t = DType::f32}, g.stream()); },
          "device memory: add: y lies in the host's memory");
  refused([&] { g.ops().zero({.y = host.data(), .bytes = 4}, g.stream()); },
          "device memory: zero: y lies in the host's");
  refused([&] { g.ops().upload({.device = host.data(), .host = host.data() + 1, .bytes = 4}, g.stream()); },
          "device memory: upload: device lies in the host's");
  refused([&] { g.ops().upload({.device = x, .host = x + 1, .bytes = 4}, g.stream()); },
          "device memory: upload: host lies in device memory");
  refused([&] { g.ops().read({.host = x, .device = x + 1, .n = 1, .t = DType::f32}, g.stream()); },
          "device memory: read: host lies in device memory");
  refused([&] { g.ops().read({.host = host.data(), .device = host.data() + 1, .n = 1, .t = DType::f32}, g.stream()); },
          "device memory: read: device lies in the host's");
  refused([&] { g.ops().add({.y = x, .a = x, .b = nullptr, .n = 100, .t = DType::f32}, g.stream()); }, "");
  // Nothing is looked at of what has no elements.
  g.ops().add({.y = host.data(), .a = host.data(), .b = host.data(), .n = 0, .t = DType::f32}, g.stream());
  g.ops().read({.host = nullptr, .device = nullptr, .n = 0, .t = DType::f32}, g.stream());
}

TEST_CASE("guard: an operand that leaves its block of device memory is refused") {
  Guarded g;
  g.open();
  auto* x = g.arena->take_n<float>(1024, MemoryOwner::weights);  // a block of 4096 bytes
  g.ops().scale({.y = x, .s = 2, .n = 1024, .t = DType::f32}, g.stream());
  CHECK(holds(failure([&] { g.ops().scale({.y = x + 1, .s = 2, .n = 1024, .t = DType::f32}, g.stream()); }),
              "device memory: scale: y has 4096 bytes, its block of device memory ends after 4092"));
  // A column of a matrix: the last row's end counts.
  g.ops().bias_bwd(
      {.d_bias = x, .d_y = x + 4, .rows = 128, .n = 4, .ld = 8, .t = DType::f32, .write = Write::overwrite},
      g.stream());
  CHECK(
      holds(failure([&] {
              g.ops().bias_bwd(
                  {.d_bias = x, .d_y = x + 5, .rows = 128, .n = 4, .ld = 8, .t = DType::f32, .write = Write::overwrite},
                  g.stream());
            }),
            "bias_bwd: d_y has"));
}

TEST_CASE("guard: index arrays are looked at too, and the rows that they name when the stream comes there") {
  Guarded g;
  g.open();
  constexpr int64_t kIds = 128, kWidth = 8, kRows = 3;
  auto* table = g.arena->take_n<float>(kIds * kWidth, MemoryOwner::weights);  // one block of 4096 bytes
  auto* x = g.arena->take_n<float>(kRows * kWidth, MemoryOwner::activations);
  const Mirrored<int32_t> ids = g.arena->take_mirrored<int32_t>(kRows, MemoryOwner::data);
  EmbeddingFwd look_up{.x = x, .table = table, .id = ids.host, .rows = kRows, .c = kWidth, .t = DType::f32};
  CHECK(holds(failure([&] { g.ops().embedding_fwd(look_up, g.stream()); }),
              "device memory: embedding_fwd: id lies in the host's memory: upload it"));
  look_up.id = ids.device;
  const auto with_id = [&](int32_t id) {
    ids.host[2] = id;
    g.ops().upload({.device = ids.device, .host = ids.host, .bytes = kRows * 4}, g.stream());
    return failure([&] {
      g.ops().embedding_fwd(look_up, g.stream());
      g.device->wait();
    });
  };
  CHECK(with_id(kIds - 1).empty());
  CHECK(holds(with_id(kIds), "device memory: embedding_fwd: table"));
  CHECK(with_id(0).empty());
  std::vector<float> host(kIds * kWidth);
  look_up.table = host.data();
  CHECK(holds(with_id(1), "device memory: embedding_fwd: table lies in the host's memory"));
}

TEST_CASE("guard: a forgotten upload reads what was there, not the host's array") {
  Guarded g;
  g.open();
  const Mirrored<float> x = g.arena->take_mirrored<float>(4, MemoryOwner::data);
  auto* y = g.arena->take_n<float>(4, MemoryOwner::activations);
  for (int i = 0; i < 4; ++i) x.host[i] = 1;
  const auto sum = [&] {
    float got[4] = {};
    g.ops().add({.y = y, .a = x.device, .b = x.device, .n = 4, .t = DType::f32}, g.stream());
    g.ops().read({.host = got, .device = y, .n = 4, .t = DType::f32}, g.stream());
    return got[3];
  };
  CHECK(sum() == 0);
  g.ops().upload({.device = x.device, .host = x.host, .bytes = 16}, g.stream());
  CHECK(sum() == 2);
}

}  // namespace
}  // namespace rw
