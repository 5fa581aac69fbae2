// Communicators are non-blocking: a call that has to wait for peers (the first ones connect) says "in progress", and is
// asked about until it is done or the time is up. Nothing here waits inside NCCL.
#include "libcore/comm/nccl_channel.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/cuts.h"
#include "libcore/comm/nccl_backend.h"
#include "libcore/comm/nccl_check.h"
#include "libcore/comm/nccl_events.h"
#include "libcore/comm/nccl_family.h"
#include "libcore/comm/patience.h"

namespace rw {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

constexpr double kRollCallS = 5;  // ranks that give up a little later are heard
constexpr double kFarewellS = 5;  // for peers that leave a communicator together

constexpr const char* kGaveUp = "this rank gave up: the first error says why";

ncclDataType_t nccl_type(DType t) {
  switch (t) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::i64: return ncclInt64;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    default: break;
  }
  CHECK(false, "no reduction of %s", dtype_name(t));
}

ncclRedOp_t nccl_op(ReduceOp op) { return op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin; }

struct Op {
  const char* what;
  int64_t bytes = 0;
  int peer = -1;                          // in the channel
  void *begin = nullptr, *end = nullptr;  // events of the channel's stream
  double began_s = -1;                    // as far as somebody looked
  bool is_captured = false, is_joined = false, is_timed = false;
};

}  // namespace

struct NcclChannel::State {
  explicit State(NcclChannelConfig config) : c(std::move(config)), compute(static_cast<cudaStream_t>(c.compute)) {}

  NcclChannelConfig c;
  cudaStream_t compute, stream = nullptr;
  ncclComm_t comm = nullptr;  // null: aborted
  EventPool events{EventPool::Clock::timed};
  double seconds = 0;  // of those that are over
  std::deque<Op> ops;  // in the order started; none of those before is under way
  int64_t first = 0;   // number of the first of them
  int64_t aborted_from = 0;
  bool is_recorded = false;  // in a graph, which may run at any time

  int64_t next() const { return first + std::ssize(ops); }

  std::string describe(const Op& op, int64_t number) const {
    if (op.bytes == 0) return fmt::format("{} #{} (group {})", op.what, number, nccl::backend_name());
    const std::string with =
        op.peer < 0 ? "" : fmt::format(" with rank {} of the group", c.members[static_cast<size_t>(op.peer)]);
    return fmt::format("{} #{}{} ({}, group {})", op.what, number, with, format_bytes(static_cast<double>(op.bytes)),
                       nccl::backend_name());
  }

  void record(void* event, cudaStream_t on) { RW_EXPECT_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(event), on)); }
  void make_wait(cudaStream_t who, void* event) {
    RW_EXPECT_CUDA(cudaStreamWaitEvent(who, static_cast<cudaEvent_t>(event), 0));
  }

  void retire() {
    while (!ops.empty() && (ops.front().is_captured ? ops.front().is_joined : event_reached(ops.front().end))) {
      if (ops.front().is_timed) seconds += event_seconds(ops.front().begin, ops.front().end);
      drop_first();
    }
  }
  void drop_first() {
    std::lock_guard lock(c.family->mutex());
    events.give(ops.front().begin);
    events.give(ops.front().end);
    ops.pop_front();
    ++first;
  }

  // An NCCL call, and what it left for later.
  template <typename F>
  void call(const std::string& what, NcclChannel* channel, F&& nccl_call) {
    Patience patience(nullptr, true);
    ncclResult_t result = ncclSuccess;
    std::string details;
    {
      std::lock_guard lock(c.family->mutex());
      c.family->check();
      result = nccl_call();
    }
    while (result == ncclInProgress) {
      nccl::move_streams();
      c.family->check();
      patience.pause();
      std::lock_guard lock(c.family->mutex());
      c.family->check();
      if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) result = ncclInternalError;
      if (result == ncclInProgress && patience.waited_s() > c.timeout_s) c.family->fail(what, channel);
    }
    if (result == ncclSuccess) return;
    {
      std::lock_guard lock(c.family->mutex());
      c.family->fail(what + ": NCCL: " + words(result), nullptr);
    }
    c.family->check();
  }

  std::string words(ncclResult_t result) const {
    const char* last = comm != nullptr ? ncclGetLastError(comm) : nullptr;
    std::string text = ncclGetErrorString(result);
    if (last != nullptr && *last != 0) text += std::string(" (") + last + ")";
    return text;
  }

  template <typename F>
  int64_t start(Op op, NcclChannel* channel, F&& nccl_call) {
    c.family->check();
    op.is_captured = is_capturing(c.compute);
    op.is_timed = !op.is_captured;
    if (op.is_captured) is_recorded = true;
    else retire();
    op.begin = events.take();
    op.end = events.take();
    // First of all the compute stream is waited for; then the event marks where the operation begins.
    record(op.begin, compute);
    make_wait(stream, op.begin);
    record(op.begin, stream);
    call(describe(op, next()), channel, std::forward<F>(nccl_call));
    record(op.end, stream);
    std::lock_guard lock(c.family->mutex());
    ops.push_back(op);
    return next() - 1;
  }

  template <typename F>
  static ncclResult_t grouped(size_t n, F&& each) {
    ncclResult_t result = ncclGroupStart();
    for (size_t i = 0; i < n && (result == ncclSuccess || result == ncclInProgress); ++i) result = each(i);
    const ncclResult_t end = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? end : result;
  }

  // Leaves the communicator, together with the peers.
  void finalize() noexcept {
    Patience patience(nullptr, true);
    bool is_begun = false;
    while (true) {
      {
        std::lock_guard lock(c.family->mutex());
        if (comm == nullptr) return;
        ncclResult_t result = ncclSuccess;
        if (!is_begun) result = ncclCommFinalize(comm);
        else if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) result = ncclInternalError;
        is_begun = true;
        if (result == ncclSuccess) break;
        if (result != ncclInProgress || patience.waited_s() > kFarewellS)
          return c.family->fail(fmt::format("leaving (group {}): peers did not leave within {}", nccl::backend_name(),
                                            format_seconds(kFarewellS)),
                                nullptr);
      }
      patience.pause();
    }
    ncclComm_t mine = nullptr;
    {
      std::lock_guard lock(c.family->mutex());
      mine = std::exchange(comm, nullptr);
    }
    if (mine != nullptr) ncclCommDestroy(mine);
  }

  // Of registered memory (handle null: of other), which nothing uses afterwards; false: NCCL may still know it. Waits
  // before it takes the lock, which whoever ends the wait needs.
  bool release(void* handle) noexcept {
    if (std::uncaught_exceptions() > 0 &&
        (cudaStreamQuery(stream) == cudaErrorNotReady || cudaStreamQuery(compute) == cudaErrorNotReady))
      c.family->fail(kGaveUp, nullptr);
    cudaStreamSynchronize(stream);
    cudaStreamSynchronize(compute);
    if (handle == nullptr) return true;
    {
      std::lock_guard lock(c.family->mutex());
      if (comm != nullptr) return ncclCommDeregister(comm, handle) == ncclSuccess;
    }
    return c.family->settle();
  }

  Attendance attendance() const { return {.channel = c.number, .started = next()}; }
};

NcclId make_nccl_id() {
  ncclUniqueId unique{};
  if (const ncclResult_t result = ncclGetUniqueId(&unique); result != ncclSuccess)
    fail(ErrorKind::runtime, "ncclGetUniqueId: {} ({}); NCCL_DEBUG=INFO says more", ncclGetErrorString(result),
         ncclGetLastError(nullptr));
  NcclId id{};
  std::memcpy(id.data(), &unique, sizeof unique);
  return id;
}

bool is_device_memory(const void* address) {
  if (address == nullptr) return false;
  cudaPointerAttributes attributes{};
  RW_EXPECT_CUDA(cudaPointerGetAttributes(&attributes, address));
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

void copy_on_device(void* to, const void* from, int64_t bytes, void* stream) {
  if (to == from) return;
  RW_EXPECT_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                 static_cast<cudaStream_t>(stream)));
}

NcclChannel::NcclChannel(NcclChannelConfig config) : s_(std::make_unique<State>(std::move(config))) {
  RW_EXPECT_CUDA(cudaStreamCreateWithFlags(&s_->stream, cudaStreamNonBlocking));
  ncclUniqueId id{};
  std::memcpy(&id, s_->c.id.data(), sizeof id);
  ncclConfig_t options = NCCL_CONFIG_INITIALIZER;
  options.blocking = 0;
  if (s_->c.max_ctas > 0) options.maxCTAs = s_->c.max_ctas;
  s_->c.family->enter(this);
  try {
    s_->call(fmt::format("connecting {} ranks (group {})", s_->c.members.size(), nccl::backend_name()), this, [&] {
      return ncclCommInitRankConfig(&s_->comm, static_cast<int>(s_->c.members.size()), id, s_->c.rank, &options);
    });
  } catch (...) {
    s_->c.family->fail(fmt::format("connecting (group {})", nccl::backend_name()), nullptr);
    s_->c.family->leave(this);
    cudaStreamDestroy(s_->stream);
    throw;
  }
}

NcclChannel::~NcclChannel() {
  State& s = *s_;
  if (std::uncaught_exceptions() > 0) s.c.family->fail(kGaveUp, nullptr);
  try {
    if (!s.c.family->has_failed() && !s.ops.empty() && !s.ops.back().is_captured) wait_on_host(s.next() - 1);
  } catch (const std::exception&) {  // told by the next call of the family
  }
  s.finalize();
  s.c.family->leave(this);
  while (!s.ops.empty()) s.drop_first();
  cudaStreamDestroy(s.stream);
}

void NcclChannel::set_timeout(double seconds) {
  std::lock_guard lock(s_->c.family->mutex());
  s_->c.timeout_s = seconds;
}

int64_t NcclChannel::all_reduce(void* data, int64_t n, DType t, ReduceOp op) {
  return s_->start({.what = "all_reduce", .bytes = n * dtype_bytes(t)}, this, [&] {
    return ncclAllReduce(data, data, static_cast<size_t>(n), nccl_type(t), nccl_op(op), s_->comm, s_->stream);
  });
}

int64_t NcclChannel::reduce_scatter(std::byte* data, Cuts cuts, DType t) {
  const std::vector<Slice> parts = parts_of(cuts);
  const auto at = [&](size_t r) { return data + parts[r].begin * dtype_bytes(t); };
  const bool is_even = std::all_of(parts.begin(), parts.end(), [&](const Slice& p) { return p.n == parts[0].n; });
  return s_->start({.what = "reduce_scatter", .bytes = dealt_out(cuts) * dtype_bytes(t)}, this, [&] {
    if (is_even)
      return ncclReduceScatter(data, at(static_cast<size_t>(s_->c.rank)), static_cast<size_t>(parts[0].n), nccl_type(t),
                               ncclSum, s_->comm, s_->stream);
    return State::grouped(parts.size(), [&](size_t r) {
      if (parts[r].n == 0) return ncclSuccess;
      return ncclReduce(at(r), at(r), static_cast<size_t>(parts[r].n), nccl_type(t), ncclSum, static_cast<int>(r),
                        s_->comm, s_->stream);
    });
  });
}

int64_t NcclChannel::all_gather(const void* part, std::byte* data, Cuts cuts, DType t) {
  const std::vector<Slice> parts = parts_of(cuts);
  const int64_t width = dtype_bytes(t);
  const bool is_even = std::all_of(parts.begin(), parts.end(), [&](const Slice& p) { return p.n == parts[0].n; });
  return s_->start({.what = "all_gather", .bytes = dealt_out(cuts) * width}, this, [&] {
    if (is_even)
      return ncclAllGather(part, data, static_cast<size_t>(parts[0].n * width), ncclUint8, s_->comm, s_->stream);
    return State::grouped(parts.size(), [&](size_t r) {
      if (parts[r].n == 0) return ncclSuccess;
      std::byte* to = data + parts[r].begin * width;
      return ncclBroadcast(static_cast<int>(r) == s_->c.rank ? part : to, to, static_cast<size_t>(parts[r].n * width),
                           ncclUint8, static_cast<int>(r), s_->comm, s_->stream);
    });
  });
}

int64_t NcclChannel::broadcast(void* data, int64_t bytes, int root) {
  return s_->start({.what = "broadcast", .bytes = bytes}, this, [&] {
    return ncclBroadcast(data, data, static_cast<size_t>(bytes), ncclUint8, root, s_->comm, s_->stream);
  });
}

int64_t NcclChannel::send(const void* data, int64_t bytes, int to) {
  return s_->start({.what = "send", .bytes = bytes, .peer = to}, this,
                   [&] { return ncclSend(data, static_cast<size_t>(bytes), ncclUint8, to, s_->comm, s_->stream); });
}

int64_t NcclChannel::recv(void* data, int64_t bytes, int from) {
  return s_->start({.what = "recv", .bytes = bytes, .peer = from}, this,
                   [&] { return ncclRecv(data, static_cast<size_t>(bytes), ncclUint8, from, s_->comm, s_->stream); });
}

void NcclChannel::replay(const std::function<void()>& replay) {
  State& s = *s_;
  s.c.family->check();
  s.retire();
  Op op{.what = "a recorded step"};
  op.begin = s.events.take();
  op.end = s.events.take();
  s.record(op.begin, s.compute);
  replay();
  s.record(op.end, s.compute);
  std::lock_guard lock(s.c.family->mutex());
  s.ops.push_back(op);
}

double NcclChannel::take_seconds() {
  s_->retire();
  return std::exchange(s_->seconds, 0);
}

bool NcclChannel::done(int64_t number) {
  CHECK(number < s_->next(), "operation %lld was not started here", static_cast<long long>(number));
  if (number < s_->first) return true;
  const Op& op = s_->ops[static_cast<size_t>(number - s_->first)];
  // What a graph is being recorded of cannot be asked about, nor anything else meanwhile.
  if (op.is_captured || is_capturing(s_->compute)) return op.is_captured && op.is_joined;
  return event_reached(op.end);
}

bool NcclChannel::did(int64_t number) {
  std::lock_guard lock(s_->c.family->mutex());
  return s_->comm == nullptr ? number < s_->aborted_from : done(number);
}

bool NcclChannel::join(int64_t number) {
  CHECK(number < s_->next(), "operation %lld was not started here", static_cast<long long>(number));
  if (number < s_->first) return false;
  Op& op = s_->ops[static_cast<size_t>(number - s_->first)];
  s_->make_wait(s_->compute, op.end);
  op.is_joined = true;
  return true;
}

void NcclChannel::wait_on_host(int64_t number) {
  Patience patience(nullptr, true);
  while (!done(number)) {
    nccl::move_streams();
    s_->c.family->check();
    patience.pause();
  }
}

struct NcclChannel::Memory {
  std::weak_ptr<NcclChannel> of;
  cudaStream_t compute;
  void *data = nullptr, *handle = nullptr;

  Memory(const std::shared_ptr<NcclChannel>& channel) : of(channel), compute(channel->s_->compute) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (data == nullptr) return;
    bool is_free = true;
    if (const auto channel = of.lock()) is_free = channel->s_->release(handle);
    else cudaStreamSynchronize(compute);
    if (is_free) ncclMemFree(data);
  }
  void deregister() {
    const auto channel = of.lock();
    std::lock_guard lock(channel->s_->c.family->mutex());
    if (handle != nullptr && channel->s_->comm != nullptr) ncclCommDeregister(channel->s_->comm, handle);
    handle = nullptr;
  }
};

// Operations on memory that some ranks registered and others did not are undefined (ncclCommRegister); on memory that
// nobody registered they go through NCCL's own buffers.
std::shared_ptr<void> NcclChannel::allocate(const std::shared_ptr<NcclChannel>& channel, int64_t bytes,
                                            const std::function<bool(bool)>& agree) {
  State& s = *channel->s_;
  const auto memory = std::make_shared<Memory>(channel);
  const auto size = static_cast<size_t>(bytes);
  if (ncclMemAlloc(&memory->data, size) != ncclSuccess) memory->data = nullptr;
  if (memory->data != nullptr) {
    RW_EXPECT_CUDA(cudaMemsetAsync(memory->data, 0, size, s.compute));
    std::lock_guard lock(s.c.family->mutex());
    if (s.comm == nullptr || ncclCommRegister(s.comm, memory->data, size, &memory->handle) != ncclSuccess)
      memory->handle = nullptr;
  }
  if (!agree(memory->handle != nullptr)) memory->deregister();
  if (memory->data == nullptr) return nullptr;
  return {memory, memory->data};
}

std::optional<NcclChannel::Trouble> NcclChannel::trouble() {
  State& s = *s_;
  if (s.comm == nullptr) return std::nullopt;
  ncclResult_t result = ncclSuccess;
  if (ncclCommGetAsyncError(s.comm, &result) == ncclSuccess && result != ncclSuccess && result != ncclInProgress) {
    const std::string op = oldest();
    return Trouble{(op.empty() ? "a communicator that was idle" : op) + ": NCCL: " + s.words(result), false};
  }
  for (size_t i = 0; i < s.ops.size(); ++i) {
    Op& op = s.ops[i];
    if (op.is_captured || event_ended(op.end)) continue;
    if (op.began_s < 0 && event_ended(op.begin)) op.began_s = now_s();
    if (op.began_s < 0 || now_s() - op.began_s < s.c.timeout_s) break;
    return Trouble{s.describe(op, s.first + static_cast<int64_t>(i)), true};
  }
  return std::nullopt;
}

std::string NcclChannel::oldest() const {
  for (size_t i = 0; i < s_->ops.size(); ++i)
    if (!s_->ops[i].is_captured && !event_ended(s_->ops[i].end))
      return s_->describe(s_->ops[i], s_->first + static_cast<int64_t>(i));
  return s_->is_recorded ? fmt::format("a recorded step (group {})", nccl::backend_name()) : "";
}

void* NcclChannel::give_up() noexcept {
  State& s = *s_;
  if (s.comm == nullptr) return nullptr;
  const auto is_under_way = [](const Op& op) { return !op.is_captured && !event_ended(op.end); };
  s.aborted_from = s.first + (std::find_if(s.ops.begin(), s.ops.end(), is_under_way) - s.ops.begin());
  return std::exchange(s.comm, nullptr);
}

std::string NcclChannel::ask_peers(const std::string& operation) {
  const double patience_s = std::min(s_->c.timeout_s, kRollCallS);
  return fmt::format(
      "{}: {} within {}; look whether that rank still runs and whether all ranks call the same operations in the same "
      "order",
      operation, s_->c.roll_call->missing(s_->c.members, s_->attendance(), patience_s),
      format_seconds(s_->c.timeout_s));
}

}  // namespace rw
