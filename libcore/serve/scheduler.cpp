#include "libcore/serve/scheduler.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {
namespace {

// Tokens that a sequence has keys and values of at most: the last one drawn is never fed.
int64_t longest(int64_t prompt, int64_t max_tokens) { return prompt + std::max<int64_t>(max_tokens - 1, 0); }

}  // namespace

Scheduler::Scheduler(const SchedulerSpec& spec) : spec_(spec), pool_(spec.n_pages), tree_(spec.block_tokens) {}

bool Scheduler::fits(int64_t prompt_tokens, int64_t max_tokens) const {
  return blocks(longest(prompt_tokens, max_tokens)) <= spec_.n_pages - tree_.kept_pages();
}

void Scheduler::add(Arrival arrival) {
  const auto n_prompt = static_cast<int64_t>(arrival.prompt.size());
  CHECK(n_prompt > 0 && fits(n_prompt, arrival.max_tokens), "sequence %lld of %lld + %lld tokens can never run",
        static_cast<long long>(arrival.id), static_cast<long long>(n_prompt),
        static_cast<long long>(arrival.max_tokens));
  const auto [it, fresh] = sequences_.try_emplace(arrival.id);
  CHECK(fresh, "sequence %lld is there already", static_cast<long long>(arrival.id));
  Sequence& s = it->second;
  s.arrival = std::move(arrival);
  s.tokens = std::move(s.arrival.prompt);
  s.n_prompt = n_prompt;
  s.order = next_order_++;
  backlog_ += n_prompt;
  waiting_.insert(key(s));
}

int32_t Scheduler::take_page() {
  if (pool_.free_pages() == 0)
    for (const int32_t page : tree_.evict(1)) pool_.give(page);
  return pool_.take();
}

void Scheduler::release_pages(Sequence& s) {
  for (size_t i = 0; i < s.pages.size(); ++i)
    if (!s.shared[i]) pool_.give(s.pages[i]);
  s.pages.clear();
  s.shared.clear();
  if (s.node >= 0) tree_.unpin(s.node);
  s.node = -1;
  s.adopted = 0;
  reserved_ -= s.reserved;
  s.reserved = 0;
  s.running = false;
}

void Scheduler::preempt(Sequence& s) {
  running_.erase(key(s));
  release_pages(s);
  ends_.push_back(s.arrival.id);
  backlog_ += s.fed;
  s.fed = 0;
  ++s.preemptions;
  ++preemptions_;
  waiting_.insert(key(s));
}

void Scheduler::end(SequenceId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  Sequence& s = it->second;
  backlog_ -= s.unfed();
  if (s.running) {
    running_.erase(key(s));
    release_pages(s);
    ends_.push_back(id);
  } else {
    waiting_.erase(key(s));
  }
  sequences_.erase(it);
}

// A page for the next token of a decoding sequence, if need be from the last in order; false: that was this one.
bool Scheduler::room_to_decode(Sequence& s, StepPlan& plan) {
  if (s.fed < static_cast<int64_t>(s.pages.size()) * spec_.block_tokens) return true;
  if (s.reserved > 0) {  // its own
    --s.reserved;
    --reserved_;
  } else {
    while (available() < 1) {
      const auto victim = std::find_if(running_.rbegin(), running_.rend(), [&](const Key& k) {
        return sequences_.at(std::get<2>(k)).preemptions < spec_.max_preemptions;
      });
      CHECK(victim != running_.rend(), "no page is left and no sequence may be preempted");
      Sequence& last = sequences_.at(std::get<2>(*victim));
      preempt(last);
      if (&last == &s) return false;
    }
  }
  s.pages.push_back(take_page());
  s.shared.push_back(false);
  plan.grants.push_back({.id = s.arrival.id, .pages = {s.pages.back()}});
  return true;
}

void Scheduler::plan_rows(Sequence& s, int64_t n, StepPlan& plan) {
  const bool draws = n == s.unfed() && s.n_output() < s.arrival.max_tokens;
  plan.rows.push_back({.id = s.arrival.id, .first = s.fed, .n = n, .sample = draws});
  s.fed += n;
  backlog_ -= n;
  if (s.node < 0 || s.duplicates) return;
  const auto size = static_cast<size_t>(spec_.block_tokens);
  for (; !s.duplicates && (s.adopted + 1) * spec_.block_tokens <= s.fed; ++s.adopted) {
    const auto i = static_cast<size_t>(s.adopted);
    const auto added = tree_.add(s.node, PrefixTree::Tokens(s.tokens).subspan(i * size, size), s.pages[i]);
    if (!added.taken) {
      // Another sequence's page holds the same block. Pinning it beside our own would take pages that are counted on.
      s.duplicates = true;
      break;
    }
    s.shared[i] = true;
    tree_.move_pin(s.node, added.node);
    s.node = added.node;
  }
}

bool Scheduler::admit(Sequence& s, StepPlan& plan) {
  const auto len = static_cast<int64_t>(s.tokens.size());
  const bool reads = caches(s) && s.arrival.prompt_logprobs < 0;
  // The last token is always computed: its logits are wanted.
  const int64_t most = reads ? (len - 1) / spec_.block_tokens : 0;
  const PrefixTree::Node found = most > 0 ? tree_.find(s.arrival.salt, s.tokens, most) : -1;
  const int64_t depth = tree_.depth(found);
  PrefixTree::Node node = -1;
  if (caches(s)) {
    node = depth > 0 ? found : tree_.root(s.arrival.salt);
    tree_.pin(node);  // before pages are counted: what it pins cannot be evicted
  }
  const bool reserves = s.preemptions >= spec_.max_preemptions;
  const int64_t now = blocks(len) - depth, most_tokens = longest(s.n_prompt, s.arrival.max_tokens),
                wanted = blocks(reserves ? most_tokens : std::min(len + 1, most_tokens)) - depth,
                headroom = static_cast<int64_t>(running_.size());
  if (wanted + headroom > available()) {
    if (node >= 0) tree_.unpin(node);
    return false;
  }
  waiting_.erase(key(s));
  running_.insert(key(s));
  s.running = true;
  s.node = node;
  s.adopted = depth;
  s.duplicates = false;
  s.fed = depth * spec_.block_tokens;
  if (s.preemptions == 0) s.cached_tokens = s.fed;
  backlog_ -= s.fed;
  if (depth > 0) s.pages = tree_.pages(node);
  s.shared.assign(s.pages.size(), true);
  for (int64_t i = 0; i < now; ++i) {
    s.pages.push_back(take_page());
    s.shared.push_back(false);
  }
  if (reserves) {
    s.reserved = wanted - now;
    reserved_ += s.reserved;
  }
  if (reads && s.preemptions == 0) {
    prefix_queries_ += len;
    prefix_hits_ += s.fed;
    count_hits(s);
  }
  plan.starts.push_back({.id = s.arrival.id,
                         .tokens = s.tokens,
                         .n_output = s.n_output(),
                         .sampling = s.arrival.sampling,
                         .prompt_logprobs = s.arrival.prompt_logprobs});
  plan.grants.push_back({.id = s.arrival.id, .pages = s.pages});
  return true;
}

bool Scheduler::next(StepPlan& plan) {
  plan = {.step = step_};
  last_decodes_ = last_prefill_ = 0;
  blocked_ = false;
  int64_t left = spec_.max_batch_tokens;

  const std::vector<Key> running(running_.begin(), running_.end());
  for (const Key& k : running) {
    Sequence& s = sequences_.at(std::get<2>(k));
    if (!s.running || s.unfed() != 1 || left == 0 || !room_to_decode(s, plan)) continue;
    plan_rows(s, 1, plan);
    ++last_decodes_;
    --left;
  }

  const int64_t chunk = costs_.chunk(last_decodes_, spec_.itl_budget_s, spec_.block_tokens, left);
  left = std::min(left, chunk);
  const auto prefill = [&](Sequence& s) {
    const int64_t n = std::min(left, s.unfed());
    plan_rows(s, n, plan);
    last_prefill_ += n;
    left -= n;
  };
  for (const Key& k : running) {
    Sequence& s = sequences_.at(std::get<2>(k));
    if (left > 0 && s.running && s.unfed() > 1) prefill(s);
  }
  const bool preempted =
      std::any_of(ends_.begin(), ends_.end(), [&](SequenceId id) { return sequences_.contains(id); });
  // A sequence that was just preempted is not let in again at once.
  while (!preempted && !waiting_.empty() && left > 0 && static_cast<int64_t>(running_.size()) < spec_.max_seqs) {
    Sequence& s = sequences_.at(std::get<2>(*waiting_.begin()));
    blocked_ = !admit(s, plan);
    if (blocked_) break;
    prefill(s);
  }
  if (last_prefill_ > 0) chunk_ = chunk;
  plan.ends = std::move(ends_);
  ends_.clear();
  if (plan.rows.empty() && plan.ends.empty()) return false;
  ++step_;
  return true;
}

void Scheduler::done(const StepOutcome& outcome) {
  costs_.add(last_decodes_, last_prefill_, outcome.seconds);
  for (const auto& [id, token] : outcome.drawn) {
    const auto it = sequences_.find(id);
    if (it == sequences_.end()) continue;  // ended meanwhile
    it->second.tokens.push_back(token);
    ++backlog_;
  }
}

void Scheduler::count_hits(const Sequence& s) {
  for (auto& [handle, kept] : kept_)
    if (kept.pages > 0 && tree_.on_path(kept.node, s.node)) ++kept.hits;
}

int64_t Scheduler::keep(SequenceId id) {
  const Sequence& s = sequences_.at(id);
  CHECK(s.node >= 0, "sequence %lld does not run, or caches nothing", static_cast<long long>(id));
  tree_.keep(s.node);
  kept_.emplace(next_kept_, Kept{.node = s.node, .pages = tree_.depth(s.node), .hits = 0});
  return next_kept_++;
}

void Scheduler::release(int64_t handle) {
  const auto it = kept_.find(handle);
  CHECK(it != kept_.end(), "nothing is kept under %lld", static_cast<long long>(handle));
  tree_.unkeep(it->second.node);
  kept_.erase(it);
}

SchedulerStats Scheduler::stats() const {
  return {.running = static_cast<int64_t>(running_.size()),
          .waiting = static_cast<int64_t>(waiting_.size()),
          .backlog_tokens = backlog_,
          .free_pages = pool_.free_pages(),
          .cached_pages = tree_.n_pages(),
          .evictable_pages = tree_.evictable_pages(),
          .kept_pages = tree_.kept_pages(),
          .prefix_queries = prefix_queries_,
          .prefix_hits = prefix_hits_,
          .evicted_pages = tree_.evicted_pages(),
          .preemptions = preemptions_,
          .chunk_tokens = chunk_,
          .blocked = blocked_};
}

SequenceView Scheduler::view(SequenceId id) const {
  const Sequence& s = sequences_.at(id);
  return {.fed = s.fed,
          .cached_tokens = s.cached_tokens,
          .pages = static_cast<int64_t>(s.pages.size()),
          .preemptions = s.preemptions,
          .running = s.running};
}

}  // namespace rw
