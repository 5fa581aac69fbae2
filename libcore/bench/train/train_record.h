// A measured training as a record, and as a table for people.
#pragma once
#include <string>
#include <vector>

#include "libcore/bench/record/bench_record.h"
#include "libcore/bench/train/expected_training.h"
#include "libcore/bench/train/measure_training.h"

namespace rw {

// A sample a repeat: step_s (median of its steps) and tokens_per_s (the tokens of a step over that median) are judged;
// step_p90_s, step_p99_s, mfu.full, .causal and .hardware (HFU: with what is computed again), compute_s,
// communication_s, bubble_s, data_s, checkpoint_s (medians, of rank 0) and communication_exposed_s are facts. Exact:
// memory.OWNER.bytes of rank 0, calls.GROUP.OP and bytes.GROUP.OP of a step, kernel_calls, kernel_flops, kernel_bytes.
// details: layout, ranks, threads, backend, peak_flops_per_rank, kernel calls by op, mfu_reading, prediction.
BenchRecord train_record(const TrainSeries& series, const TrainExpectation& expected, const TrainBenchSpec& spec);
// Predicted beside measured, memory, counts and the reading of the MFU.
std::string train_table(const BenchRecord& record);
// A line that names the cases of these records that others disturbed; "" when none was.
std::string not_quiet_text(const std::vector<BenchRecord>& records);
// Over all repeats; NaN where the record has no such metric.
double median_of_metric(const BenchRecord& record, const std::string& name);

}  // namespace rw
