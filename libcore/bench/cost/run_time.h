// Where a training run's wall time went, from its first start to its last sign of life: what counts for the model that
// came out, and what did not.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/bench/record/run_records.h"

namespace rw {

struct RunTime {
  double wall_s = 0;  // first start to last record; the sum of the steps where no event tells
  int64_t attempts = 0, rewinds = 0;
  int64_t steps = 0, skipped_steps = 0, lost_steps = 0;  // lost: computed and thrown away by a resume or a rewind
  // Parts of wall_s; they add up to it.
  double productive_s = 0;  // steps that count, without their waits for data
  double data_s = 0, checkpoint_s = 0, validation_s = 0, skipped_s = 0;
  double lost_s = 0;   // lost_steps at the usual step's time: an estimate
  double down_s = 0;   // between an attempt's last record and the next one's start
  double other_s = 0;  // the rest: starting, ending, evaluating without a record
  bool from_events = false;
  // Share of the wall time that went into what came out.
  double effective() const { return wall_s > 0 ? productive_s / wall_s : 0; }
};

// Of rank 0's records. A step that was lost is seen by the events and, where there are any, by the resource records: at
// most a second's steps before a crash are missed. What happens before an attempt's first event (starting the
// processes, reading the model) is in no record of the first attempt, and in down_s of the later ones.
RunTime run_time(const RunRecords& run);

// "2026-01-31T12:34:56Z" -> seconds since 1970 (proleptic Gregorian, UTC); NaN for anything else.
double utc_seconds(const std::string& time);

}  // namespace rw
