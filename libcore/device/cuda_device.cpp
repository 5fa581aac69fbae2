// A GPU as a device: one for each rank, which has it for itself.
//
// Peers: ranks of a node reach each other's memory through NCCL, which sets that up between processes. Nothing is
// enabled here: a process that enables access to a device makes a context there, hundreds of MB on each of the others'.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/shared_limits.h"
#include "libcore/base/log.h"
#include "libcore/device/cuda_copies.h"
#include "libcore/device/cuda_errors.h"
#include "libcore/device/cuda_table.h"
#include "libcore/device/inventory.h"
#include "libcore/device/open_device.h"

namespace rw {
namespace {

// What kernels/cuda is compiled for, and what it asks for.
constexpr int kLeastCapability = 8;
constexpr auto kLeastSharedBytes = static_cast<int64_t>(cuda::kMostSharedBytes);

class CudaClock final : public DeviceClock {
 public:
  explicit CudaClock(cudaStream_t stream) : stream_(stream) {}
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;
  ~CudaClock() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  int mark() override {
    return as_errors([&] {
      if (n_ == events_.size()) {
        cudaEvent_t event = nullptr;
        RW_CUDA(cudaEventCreate(&event));
        events_.push_back(event);
      }
      RW_CUDA(cudaEventRecord(events_[n_], stream_));
      return static_cast<int>(n_++);
    });
  }
  double seconds(int from, int to) override {
    return as_errors([&] {
      float ms = 0;
      RW_CUDA(cudaEventElapsedTime(&ms, events_.at(static_cast<size_t>(from)), events_.at(static_cast<size_t>(to))));
      return 1e-3 * static_cast<double>(ms);
    });
  }
  void clear() override { n_ = 0; }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;  // kept by clear(): a steady state makes none
  size_t n_ = 0;
};

class RecordedGraph final : public RecordedOps {
 public:
  RecordedGraph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    RW_CUDA(cudaGraphInstantiate(&exec_, graph, 0));
  }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;
  ~RecordedGraph() override { cudaGraphExecDestroy(exec_); }
  void replay() override {
    as_errors([&] { RW_CUDA(cudaGraphLaunch(exec_, stream_)); });
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t exec_ = nullptr;
};

class CudaDevice final : public Device, private DeviceMemory {
 public:
  // CudaError for what the device refuses.
  CudaDevice(int index, std::string name, std::string bus, int threads)
      : index_(index), name_(std::move(name)), bus_(std::move(bus)), threads_(threads) {
    RW_CUDA(cudaSetDevice(index_));
    // Apart from the default stream, which library code may use and wait for.
    RW_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    try {
      copies_.emplace(index_);
      try_cuda_device();
    } catch (...) {
      cudaStreamDestroy(stream_);
      throw;
    }
  }
  ~CudaDevice() override {
    copies_.reset();
    cudaStreamDestroy(stream_);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return name_; }
  std::string bus() const override { return bus_; }
  const Ops& ops() const override { return cuda_device_ops(); }
  int64_t most_head_size() const override { return cuda_most_head_size(); }
  Stream stream() const override { return {.threads = threads_, .native = stream_}; }
  DeviceMemory* memory() override { return this; }
  void wait() override {
    as_errors([&] { RW_CUDA(cudaStreamSynchronize(stream_)); });
  }
  void bind_thread() override {
    as_errors([&] {
      RW_CUDA(cudaSetDevice(index_));
      RW_CUDA(cudaStreamSynchronize(stream_));  // what the other thread left there is done, or told
    });
  }
  std::unique_ptr<DeviceClock> make_clock() override { return std::make_unique<CudaClock>(stream_); }

  // The plain run does the work, and makes what libraries and the driver make at the first use, which a capture may
  // not.
  std::unique_ptr<RecordedOps> record(const std::function<void()>& ops) override {
    ops();
    return as_errors([&]() -> std::unique_ptr<RecordedOps> {
      RW_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
      Capture capture{stream_};
      ops();
      return std::make_unique<RecordedGraph>(capture.end(), stream_);
    });
  }

  void* allocate(int64_t bytes) override {
    return as_errors([&] {
      void* block = nullptr;
      if (!has_room(cudaMalloc(&block, static_cast<size_t>(bytes)), "cudaMalloc")) return block;
      RW_CUDA(cudaMemsetAsync(block, 0, static_cast<size_t>(bytes), stream_));
      RW_CUDA(cudaStreamSynchronize(stream_));
      return block;
    });
  }
  void* allocate_host(int64_t bytes) override {
    return as_errors([&] {
      void* block = nullptr;
      if (has_room(cudaHostAlloc(&block, static_cast<size_t>(bytes), cudaHostAllocDefault), "cudaHostAlloc"))
        std::memset(block, 0, static_cast<size_t>(bytes));
      return block;
    });
  }
  // Called on the way out of a failure too: what the device says then has been said.
  void release(void* block) override {
    cudaStreamSynchronize(stream_);
    cudaFree(block);
  }
  void release_host(void* block) override {
    cudaStreamSynchronize(stream_);
    cudaFreeHost(block);
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    as_errors([&] { copies_->to_host(host, device, bytes); });
  }
  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
  }

 private:
  // The capture under way; whatever stops it, the stream works again.
  struct Capture {
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    bool ended = false;
    cudaGraph_t end() {
      ended = true;
      RW_CUDA(cudaStreamEndCapture(stream, &graph));
      return graph;
    }
    ~Capture() {
      if (!ended) {
        cudaStreamEndCapture(stream, &graph);
        cudaGetLastError();
      }
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
  };
  static bool has_room(cudaError_t code, const char* call) {
    if (code == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return false;
    }
    cuda::check(code, call, __FILE__, __LINE__);
    return true;
  }

  int index_;
  std::string name_, bus_;
  int threads_;
  cudaStream_t stream_ = nullptr;
  std::optional<CudaCopies> copies_;
};

// f(), which opens a device: where it has no room, nothing of ours is there to be made smaller.
template <class F>
auto opening(const std::string& name, F&& f) -> decltype(f()) {
  return as_errors([&] {
    try {
      return f();
    } catch (const cuda::OutOfDeviceMemory& e) {
      fail(ErrorKind::runtime,
           "{} has no memory left to be opened: {}; nvidia-smi shows which processes hold it: end them, choose another "
           "GPU with --device cuda:N, or run with --device cpu",
           name, e.what());
    }
  });
}

// A launcher may show each rank its own device alone.
bool sees_its_own() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && *visible != 0 && std::string_view(visible).find(',') == std::string_view::npos;
}

std::string name_of(const DeviceInfo& device) { return fmt::format("cuda:{} ({})", device.index, device.name); }

DeviceInfo chosen_device(const DeviceWish& wish, int index) {
  const DeviceInventory all = cuda_inventory();
  const int n = static_cast<int>(all.devices.size());
  if (n == 0)
    fail(ErrorKind::usage, "--device {}: no CUDA device: {}; run with --device cpu", wish.device, all.why_none);
  if (index < 0) {
    index = n == 1 && sees_its_own() ? 0 : wish.local_rank;
    if (index >= n)
      fail(ErrorKind::usage,
           "--device {}: local rank {} has no device: a rank takes one, and this host has {} ({}); start at most {} "
           "rank{} on a host, or run with --device cpu",
           wish.device, index, n, all.devices[0].name, n, n == 1 ? "" : "s");
  }
  if (index >= n)
    fail(ErrorKind::usage, "--device {}: expected cuda:0 to cuda:{}: this host has {} ({})", wish.device, n - 1, n,
         all.devices[0].name);
  const DeviceInfo& chosen = all.devices[static_cast<size_t>(index)];
  if (chosen.capability_major < kLeastCapability || chosen.shared_bytes < kLeastSharedBytes)
    fail(ErrorKind::usage,
         "--device {}: {} has compute capability {}.{} and {} KiB of shared memory a block, expected {}.0 or later and "
         "{} KiB (8.0, 9.0 and 10.x have that, 8.6, 8.9 and 12.x have not); choose another, or run with --device cpu",
         wish.device, name_of(chosen), chosen.capability_major, chosen.capability_minor, chosen.shared_bytes >> 10,
         kLeastCapability, kLeastSharedBytes >> 10);
  return chosen;
}

}  // namespace

void check_cuda_device(const DeviceWish& wish, int index) { chosen_device(wish, index); }

std::unique_ptr<Device> open_cuda_device(const DeviceWish& wish, int index) {
  const DeviceInfo chosen = chosen_device(wish, index);
  const std::string name = name_of(chosen);
  if (wish.local_rank == 0 && chosen.name.starts_with("simulated"))
    log_info("{}: the GPU is simulated on the CPU: no time, speed or share of a peak below says anything", name);
  return opening(name,
                 [&] { return std::make_unique<CudaDevice>(chosen.index, name, chosen.pci_bus_id, wish.threads); });
}

}  // namespace rw
