// Which tokens go through the model in the next step: continuous batching with chunked prefill, pages, prefix cache and
// preemption. A deterministic state machine: it has no clock, device or randomness; what it is told (arrivals, ends,
// drawn ids, durations) decides its plans, so that a log of those gives the same plans again.
//
// A step takes one token of every decoding sequence first, then prefill: of sequences that have begun, in order, then
// of waiting ones as long as tokens, sequences and pages are left. Order is (priority, arrival). A sequence gets the
// pages of all its tokens when it is admitted, and one more whenever a page is full; when none is left the last in
// order is preempted: its pages go (those of the prefix tree may survive) and it waits for its turn to be computed
// again. After max_preemptions it is admitted only with every page reserved that it can ever need, and is not preempted
// any more. Blocks enter the prefix tree when the step that computes them is planned. A waiting sequence is looked at
// when all running ones have had their prefill, so of several with one prefix the first computes it and the others find
// it.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libcore/serve/kv_pool.h"
#include "libcore/serve/prefix_tree.h"
#include "libcore/serve/step_costs.h"
#include "libcore/serve/step_plan.h"

namespace rw {

struct SchedulerSpec {
  int64_t n_pages = 0, block_tokens = 16;
  int64_t max_seqs = 64, max_batch_tokens = 512;
  double itl_budget_s = 0;  // 0: none
  int64_t max_preemptions = 3;
  bool prefix_cache = true;
  bool operator==(const SchedulerSpec&) const = default;
};

struct Arrival {
  SequenceId id = -1;
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  SamplingParams sampling = {};
  int64_t prompt_logprobs = -1;
  bool cache = true;
  std::string salt = {};
  int64_t priority = 0;
};

struct StepOutcome {
  double seconds = 0;
  std::vector<std::pair<SequenceId, int32_t>> drawn;
};

struct SchedulerStats {
  int64_t running = 0, waiting = 0, backlog_tokens = 0;
  int64_t free_pages = 0, cached_pages = 0, evictable_pages = 0, kept_pages = 0;
  int64_t prefix_queries = 0, prefix_hits = 0, evicted_pages = 0, preemptions = 0;
  int64_t chunk_tokens = 0;
  bool blocked = false;  // the first that waits found no room in the last step
};

struct SequenceView {
  int64_t fed = 0, cached_tokens = 0, pages = 0, preemptions = 0;
  bool running = false;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerSpec& spec);

  // Whether a sequence could run alone: its pages, those kept by the warm-up left out.
  bool fits(int64_t prompt_tokens, int64_t max_tokens) const;
  void add(Arrival arrival);  // a new id; fits() or CHECK
  // Finished or cancelled: its pages are free for the next plan. Unknown ids are ignored.
  void end(SequenceId id);
  // The next step; false when there is nothing to do (a plan may be of ends alone, for the ranks to forget them).
  bool next(StepPlan& plan);
  // What came of the last plan.
  void done(const StepOutcome& outcome);

  // Keeps the blocks of a sequence's prompt that are in the tree until release; hits: admissions that found all of
  // them.
  struct Kept {
    PrefixTree::Node node;
    int64_t pages, hits;
  };
  int64_t keep(SequenceId id);  // of one that runs and caches; returns a handle
  void release(int64_t handle);
  Kept kept(int64_t handle) const { return kept_.at(handle); }

  SchedulerStats stats() const;
  SequenceView view(SequenceId id) const;  // of a known one
  const StepCosts& costs() const { return costs_; }

 private:
  using Key = std::tuple<int64_t, int64_t, SequenceId>;  // priority, arrival, id
  struct Sequence {
    Arrival arrival;  // its prompt is moved to tokens
    int64_t order = 0, n_prompt = 0;
    std::vector<int32_t> tokens;
    int64_t fed = 0;
    std::vector<int32_t> pages;
    std::vector<bool> shared;    // (pages) the tree's
    PrefixTree::Node node = -1;  // the deepest of its path, pinned while it runs
    int64_t adopted = 0;         // blocks that are in the tree
    bool duplicates = false;     // a block of its own is in the tree as another's: it adds no more
    int64_t reserved = 0;        // pages it may yet take
    int64_t cached_tokens = 0, preemptions = 0;
    bool running = false;
    int64_t unfed() const { return static_cast<int64_t>(tokens.size()) - fed; }
    int64_t n_output() const { return static_cast<int64_t>(tokens.size()) - n_prompt; }
  };

  int64_t blocks(int64_t tokens) const { return (tokens + spec_.block_tokens - 1) / spec_.block_tokens; }
  Key key(const Sequence& s) const { return {s.arrival.priority, s.order, s.arrival.id}; }
  bool caches(const Sequence& s) const { return spec_.prefix_cache && s.arrival.cache; }
  int64_t available() const { return pool_.free_pages() + tree_.evictable_pages() - reserved_; }
  int32_t take_page();
  void release_pages(Sequence& s);
  void preempt(Sequence& s);
  bool room_to_decode(Sequence& s, StepPlan& plan);
  void plan_rows(Sequence& s, int64_t n, StepPlan& plan);
  bool admit(Sequence& s, StepPlan& plan);
  void count_hits(const Sequence& s);

  SchedulerSpec spec_;
  KvPool pool_;
  PrefixTree tree_;
  StepCosts costs_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::set<Key> running_, waiting_;
  std::vector<SequenceId> ends_;  // that the ranks still know
  std::unordered_map<int64_t, Kept> kept_;
  int64_t next_order_ = 0, next_kept_ = 0, step_ = 0;
  int64_t reserved_ = 0, backlog_ = 0;
  int64_t last_decodes_ = 0, last_prefill_ = 0, chunk_ = 0;
  int64_t prefix_queries_ = 0, prefix_hits_ = 0, preemptions_ = 0;
  bool blocked_ = false;
};

}  // namespace rw
