// What `dserve --out` leaves behind, read once: events.jsonl, spans.jsonl, steps.jsonl, dump-*.json. Lines that are cut
// off or of another kind are passed over and counted; what a line does not say is NaN, never 0.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/bench/record/run_records.h"

namespace rw {

// A line of spans.jsonl: seconds of each span (NaN: it has none).
struct ServedSequence {
  std::string request_id, finish_reason;
  double prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, preemptions = 0;
  double receive_s = 0, tokenize_s = 0, queue_s = 0, prefill_s = 0, decode_s = 0, preempted_s = 0;
  double ttft_s = 0;  // from the request's arrival to the end of its prefill
  double lag_s = 0;   // the stream's end behind the last token's: what the client's side took
};

// Of steps.jsonl: what the prompts had in common, and how long steps took. NaN: not known.
struct StepFacts {
  int64_t arrivals = 0, steps = 0, n_pages = 0, block_tokens = 0, max_seqs = 0;
  bool prefix_cache = true;
  double itl_budget_s = 0;
  // Of the tokens of the prompts: the share that an earlier prompt began with too, in whole pages (what an endless
  // cache would have found), and the share that was found.
  double shared_share = 0, cached_share = 0;
  // The most sequences at one time that computed one beginning of four pages or more, each for itself; 1: none twice.
  int64_t stampede = 0;
  // Of steps of one shape (decodes alone, equally many, contexts within a factor of two): median seconds in the second
  // half of the log over the first.
  double slowdown = 0;
  // The share of the time of all steps with decodes that is in those with prefill beside and more than five times a
  // decode step's median; the median seconds of the half with the larger chunks; a decode step's median.
  double stalled_share = 0, stall_s = 0, decode_step_s = 0;
};

struct ServeRecords {
  std::filesystem::path dir;
  std::vector<EventRecord> events;
  std::vector<ServedSequence> sequences;  // at most the last 200 000
  StepFacts steps;                        // arrivals 0: there is no steps.jsonl
  std::vector<std::filesystem::path> dumps;
  std::vector<std::string> notes;
};

// Error{input}: not a directory, or nothing of a server in it.
ServeRecords read_serve_records(const std::filesystem::path& dir);

}  // namespace rw
