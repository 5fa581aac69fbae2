// The arrays that the ops of a step read and the host makes: one behind the other, so that one copy takes them to the
// device.
#pragma once
#include <compare>
#include <cstdint>

#include "libcore/device/arena.h"
#include "libcore/model/exec.h"

namespace rw {

struct StepShape {
  int64_t rows = 0, seqs = 0;  // tokens and sequences of the flat batch
  int64_t pages = 0;           // row stride of the page table
  bool operator==(const StepShape&) const = default;
  auto operator<=>(const StepShape&) const = default;
};

class StepArrays {
 public:
  struct Views {
    int64_t* slot;              // (rows)
    int32_t *ids, *pos;         // (rows)
    int32_t *starts, *context;  // (seqs+1), (seqs)
    int32_t* table;             // (seqs, pages)
  };
  static int64_t bytes(const StepShape& shape);

  StepArrays(const StepShape& most, Arena& arena);
  // Places the arrays anew: those of the last shape are gone.
  void place(const StepShape& shape);
  const StepShape& shape() const { return shape_; }
  const Views& host() const { return host_; }
  const Views& device() const { return device_; }
  void upload(const Exec& exec) const;

 private:
  StepShape most_, shape_{};
  Mirrored<std::byte> memory_;
  Views host_{}, device_{};
};

}  // namespace rw
