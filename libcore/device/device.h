// Where a rank's tensors lie and its ops run. Code that computes sees an op table, a stream and an arena; what is of
// the device as such is here: opening it, its memory, waiting for it, its clock, and recorded steps.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/ops.h"
#include "libcore/device/device_memory.h"

namespace rw {

enum class DeviceKind : uint8_t { cpu, cuda };

struct DeviceWish {
  std::string device = "cpu";  // "cpu", "cuda" (the one that `local_rank` falls on), or "cuda:N"
  int local_rank = 0;          // of this process among the ranks of its host
  int threads = 1;             // of the CPU
};

// Work that was recorded once and is put on the stream as one piece.
class RecordedOps {
 public:
  virtual ~RecordedOps() = default;
  virtual void replay() = 0;
};

// Times on a device's stream: marks are put there like ops, and read when the stream has been waited for. No ops of a
// recorded piece may come between making a mark and the return of record().
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  virtual int mark() = 0;                        // its number: 0, 1, ...
  virtual double seconds(int from, int to) = 0;  // between two marks, after a wait()
  virtual void clear() = 0;                      // the next mark is 0 again
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "cpu/avx512_bf16", "cuda:0 (NVIDIA H200)"
  // Which of the host's: a GPU's PCI bus, the same in all processes, however they count. "": the CPUs, which are
  // shared.
  virtual std::string bus() const { return ""; }
  virtual const Ops& ops() const = 0;
  virtual int64_t most_head_size() const { return INT64_MAX; }  // that its attention_fwd and attention_bwd take
  virtual Stream stream() const = 0;
  virtual DeviceMemory* memory() = 0;  // null: the host's
  // Returns when all that was put on the stream is done. Error{runtime} naming what failed there.
  virtual void wait() = 0;
  // What a host thread other than the one that opened the device calls before it uses it.
  virtual void bind_thread() = 0;
  // Does `ops`, and returns what does it again, with the same addresses and sizes; what it uploads is read anew each
  // time. Null where the device gains nothing by that. `ops` waits for nothing (no Read), and may be called twice, the
  // second time without effect on the device: what it does on the host must bear that.
  virtual std::unique_ptr<RecordedOps> record(const std::function<void()>& ops) = 0;
  virtual std::unique_ptr<DeviceClock> make_clock() = 0;
};

// Error{usage} for a device that this build or machine does not have: what is missing, and how to run on the CPU.
// check_device opens nothing: for before a tool reads what the run needs.
void check_device(const DeviceWish& wish);
std::unique_ptr<Device> open_device(const DeviceWish& wish);

// Error{usage} when a model with heads of `head_size` cannot be trained there.
void check_head_size(const Device& device, int64_t head_size);

// cpu_ops() for this CPU, or for RANKWRIGHT_ISA: Error{usage} when that names no instruction set of this CPU.
const Ops& this_cpu_ops();

}  // namespace rw
