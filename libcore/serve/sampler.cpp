#include "libcore/serve/sampler.h"

#include <cmath>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/serve/sampler_work.h"

namespace rw {
namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kNucleus = 128;   // a rank's best that are looked at before the whole distribution is
constexpr int64_t kMostBest = 256;  // top_k beyond it does not ask for more at once

using Head = SampleHead;
using Told = SampleTold;

bool needs_sum(const Truncation& t) { return t.none() || t.needs_total(); }

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// exp(a - b) where a may be -inf.
double share(float a, float b, float inv_t) {
  return std::exp((static_cast<double>(a) - static_cast<double>(b)) * static_cast<double>(inv_t));
}
}  // namespace

Sampler::Sampler(int64_t vocab, VocabRange mine, Comm& comm, int threads, std::unique_ptr<DeviceLogits> device)
    : vocab_(vocab), mine_(mine), comm_(comm), threads_(threads), device_(std::move(device)) {
  CHECK(0 <= mine.begin && mine.begin <= mine.end && mine.end <= vocab, "columns %ld to %ld of %ld", mine.begin,
        mine.end, vocab);
}
Sampler::~Sampler() = default;

// Where the row's logits are looked at.
void Sampler::place(Work& w, int64_t slot) {
  if (device_ == nullptr) return;
  w.slot = slot;
  w.is_here = false;
  if (w.has_rules() || std::max(w.n_best, w.n_raw) > kMostSampleBest) fetch(w);
}

// What the device is to find out about a row that nothing is known of yet.
SampleAsk Sampler::ask_of(const Work& w) const {
  SampleAsk ask{.n_best = static_cast<int32_t>(std::max(w.n_best, w.n_raw)), .raw_sum = w.tells_logprob() ? 1 : 0};
  if (w.scored && w.id >= mine_.begin && w.id < mine_.end) ask.column = w.id - static_cast<int32_t>(mine_.begin);
  if (!w.draws()) return ask;
  const Truncation t = w.truncation(vocab_);
  if (needs_sum(t)) ask.inv_t = Weigh(0, w.params().temperature).inv_t;
  if (t.none() && comm_.size() == 1) ask.share = w.uniform();  // no other rank has a say in it
  return ask;
}

// From here on the row goes the way of rows in the host's memory.
void Sampler::fetch(Work& w) {
  w.row.logits = device_->fetch(w.slot, w.row.logits);
  w.is_here = true;
}

// Before the rows' messages are made: what they need of the device, in one pass.
void Sampler::ask_device(std::span<Work> works) {
  device_->clear();
  for (Work& w : works) {
    if (w.is_here || w.stage == Work::Stage::done) continue;
    if (w.stage == Work::Stage::head) {
      device_->ask(w.slot, w.row.logits, ask_of(w));
    } else if (w.stage != Work::Stage::tell) {  // the candidates do not decide
      fetch(w);
      w.scan.scan({w.row.logits, static_cast<size_t>(mine_.end - mine_.begin)});
    } else if (w.id < 0 && w.owner == comm_.rank() && comm_.size() > 1) {
      SampleAsk ask{.inv_t = Weigh(0, w.params().temperature).inv_t};
      ask.share = std::clamp(w.target / device_->facts(w.slot).sum, 0.0, 1.0);
      device_->ask(w.slot, w.row.logits, ask);
    }
  }
  device_->answer();
}

// This rank's message of the row's stage.
void Sampler::summarise(Work& w, std::byte* message) const {
  const int32_t first = static_cast<int32_t>(mine_.begin);
  if (w.stage == Work::Stage::tell) {
    Told told{.id = -1, .raw = 0};
    if (w.id < 0 && w.owner == comm_.rank() && !w.is_here) {
      told.id = first + device_->facts(w.slot).drawn;
    } else if (w.id < 0 && w.owner == comm_.rank()) {
      const int64_t column = find_column(w.scan, {w.cut_max, w.params().temperature}, w.cut, w.target,
                                         w.cut.z == -kInf ? w.block_sum.data() : nullptr);
      CHECK(column >= 0, "no token at position %ld", w.row.position);
      told.id = first + static_cast<int32_t>(column);
    } else if (w.id >= mine_.begin && w.id < mine_.end) {
      told.id = w.id;
    }
    if (told.id >= 0)
      told.raw =
          w.is_here ? raw_logit(w.row.logits, w.changed, told.id - first) : device_->logit(w.slot, told.id - first);
    std::memcpy(message, &told, sizeof told);
    return;
  }
  if (w.stage == Work::Stage::head) {
    head_message(w, message);
    return;
  }
  const CutSearch& search = *w.search;
  const Weigh weigh(w.cut_max, w.params().temperature);
  if (!search.narrowed()) w.is_listed = false;
  else if (w.is_listed) w.listed.narrow(search.lo(), search.hi());
  else w.listed.collect(w.scan, search.lo(), search.hi());
  w.is_listed = search.narrowed();
  const std::span<const float> z =
      w.is_listed ? std::span<const float>(w.listed.z.data(), static_cast<size_t>(w.listed.n)) : w.scan.z;
  if (w.stage == Work::Stage::probe) {
    Probe probe[kProbes];
    lane_ops().probe(z.data(), static_cast<int64_t>(z.size()), weigh.max, weigh.inv_t, search.at(), probe);
    std::memcpy(message, probe, sizeof probe);
    return;
  }
  for (size_t i = 0; i < z.size(); ++i) {
    const TokenLogit t{.z = z[i], .id = first + w.listed.column[i]};
    std::memcpy(message + i * sizeof t, &t, sizeof t);
  }
}

// The first message: what this rank's columns bring to the decision.
void Sampler::head_message(Work& w, std::byte* message) const {
  const int64_t n = mine_.end - mine_.begin;
  const int32_t first = static_cast<int32_t>(mine_.begin);
  Head head{.sum = 0, .raw_sum = 0, .max = -kInf, .raw_max = -kInf, .arg = -1, .n_best = 0, .n_raw = 0, .finite = 1};
  w.best.clear();
  w.raw_best.clear();
  if (!w.is_here) {
    const SampleFacts& f = device_->facts(w.slot);
    head.finite = f.finite;
    if (f.finite != 0) head.raw_max = f.max;
    if (f.finite != 0 && !w.scored) head.max = f.max;
    if (head.raw_max > -kInf) {
      head.arg = first + f.arg;
      head.raw_sum = w.tells_logprob() ? f.raw_sum : 0;
      head.sum = w.draws() && needs_sum(w.truncation(vocab_)) ? f.sum : 0;
      device_->best(w.slot, w.n_best, first, w.best);
      device_->best(w.slot, w.n_raw, first, w.raw_best);
    }
  }
  const std::span<const float> z(w.row.logits, w.is_here ? static_cast<size_t>(n) : 0);
  w.block_sum.resize(static_cast<size_t>(blocks_of(n, kSumBlock)));
  if (w.is_here && w.tells_logprob()) {
    w.scan.scan(z);
    head.raw_max = w.scan.max;
    head.finite = w.scan.finite;
    if (w.scan.finite && w.scan.max > -kInf) {
      head.raw_sum = lane_ops().sums(z.data(), n, w.scan.max, 1, w.block_sum.data());
      best_columns(w.scan, w.n_raw, first, w.raw_best);
    }
  }
  if (w.is_here && !w.scored && head.finite != 0) {
    const bool rules_fine = apply_rules(w.row, mine_, w.changed);
    if (!w.tells_logprob() || !w.changed.empty()) w.scan.scan(z);
    head.max = w.scan.max;
    head.arg = first + static_cast<int32_t>(w.scan.arg_max());
    head.finite = rules_fine && w.scan.finite;
    if (head.finite != 0 && w.scan.max > -kInf && w.draws()) {
      const Truncation t = w.truncation(vocab_);
      const Weigh weigh(w.scan.max, w.params().temperature);
      if (needs_sum(t)) head.sum = lane_ops().sums(z.data(), n, weigh.max, weigh.inv_t, w.block_sum.data());
      best_columns(w.scan, w.n_best, first, w.best);
    }
  }
  head.n_best = static_cast<int32_t>(w.best.size());
  head.n_raw = static_cast<int32_t>(w.raw_best.size());
  std::memcpy(message, &head, sizeof head);
  message += sizeof head;
  if (!w.best.empty()) std::memcpy(message, w.best.data(), w.best.size() * sizeof(TokenLogit));
  message += w.best.size() * sizeof(TokenLogit);
  if (!w.raw_best.empty()) std::memcpy(message, w.raw_best.data(), w.raw_best.size() * sizeof(TokenLogit));
}

// From all ranks' messages of the row's stage to its next stage.
void Sampler::decide(Work& w, std::span<const std::byte* const> messages) const {
  const size_t ranks = messages.size();
  if (w.stage == Work::Stage::tell) {
    for (const std::byte* m : messages)
      if (const Told told = read<Told>(m); told.id >= 0) {
        w.id = told.id;
        w.raw = told.raw;
      }
    w.stage = Work::Stage::done;
    return;
  }
  if (w.stage != Work::Stage::head) {
    w.advance_search(messages);
    if (w.search->needs() != CutSearch::Needs::nothing) return;
    std::vector<double> shares;
    for (const RankShare& s : w.search->shares()) shares.push_back(s.mass);
    w.cut = {.z = w.search->cut(), .ties = w.search->shares()[static_cast<size_t>(comm_.rank())].ties};
    w.pick_owner(shares);
    return;
  }
  std::vector<Head> heads;
  for (const std::byte* m : messages) heads.push_back(read<Head>(m));
  float max = -kInf, raw_max = -kInf;
  for (const Head& h : heads) {
    if (h.finite == 0) w.trouble = Work::Trouble::not_finite;
    if (h.max > max) max = h.max, w.id = w.scored ? w.id : h.arg;
    raw_max = std::max(raw_max, h.raw_max);
  }
  if (w.trouble == Work::Trouble::none && (w.scored ? raw_max : max) == -kInf) w.trouble = Work::Trouble::masked;
  w.stage = Work::Stage::done;
  if (w.trouble != Work::Trouble::none) return;
  const auto tokens = [&](size_t r, int64_t from, int64_t n) {
    const std::byte* at = messages[r] + sizeof(Head) + static_cast<size_t>(from) * sizeof(TokenLogit);
    const size_t old = w.merged.size();
    w.merged.resize(old + static_cast<size_t>(n));
    if (n > 0) std::memcpy(w.merged.data() + old, at, static_cast<size_t>(n) * sizeof(TokenLogit));
    std::inplace_merge(w.merged.begin(), w.merged.begin() + static_cast<std::ptrdiff_t>(old), w.merged.end(), before);
  };
  if (w.tells_logprob()) {
    double sum = 0;
    for (const Head& h : heads) sum += h.raw_sum * share(h.raw_max, raw_max, 1);
    w.lse = static_cast<double>(raw_max) + std::log(sum);
    w.merged.clear();
    for (size_t r = 0; r < ranks; ++r) tokens(r, heads[r].n_best, heads[r].n_raw);
    w.merged.resize(std::min(w.merged.size(), static_cast<size_t>(w.n_raw)));
    for (const TokenLogit& t : w.merged)
      w.out->top.push_back({.id = t.id, .logprob = static_cast<float>(static_cast<double>(t.z) - w.lse)});
  }
  if (!w.draws()) {
    w.decided(w.id);
    return;
  }
  w.id = -1;
  w.cut_max = max;
  const Weigh weigh(max, w.params().temperature);
  const Truncation t = w.truncation(vocab_);
  std::vector<double> sums;
  for (const Head& h : heads) sums.push_back(h.sum * share(h.max, max, weigh.inv_t));
  if (t.none()) {
    w.pick_owner(sums);
    w.cut_max = heads[static_cast<size_t>(w.owner)].max;
    w.target /= share(w.cut_max, max, weigh.inv_t);
    return;
  }
  w.merged.clear();
  std::optional<TokenLogit> known_to;  // behind it a rank may have more than it sent
  for (size_t r = 0; r < ranks; ++r) {
    tokens(r, 0, heads[r].n_best);
    if (heads[r].n_best < w.n_best) continue;
    const std::byte* last = messages[r] + sizeof(Head) + static_cast<size_t>(w.n_best - 1) * sizeof(TokenLogit);
    if (const TokenLogit t_last = read<TokenLogit>(last); !known_to || before(t_last, *known_to)) known_to = t_last;
  }
  if (known_to) w.merged.erase(std::upper_bound(w.merged.begin(), w.merged.end(), *known_to, before), w.merged.end());
  double total = 0;
  for (const double s : sums) total += s;
  const int64_t kept = count_kept(t, {.tokens = w.merged, .whole = !known_to, .total = total}, weigh);
  if (kept < 0) {
    const double negligible = t.needs_total() ? (1 - t.top_p) * total / static_cast<double>(vocab_) : 0;
    w.search.emplace(t, weigh,
                     CutSearch::Start{.known_to = w.merged.back().z, .negligible = negligible, .ranks = comm_.size()});
    w.stage = Work::Stage::probe;
    return;
  }
  w.merged.resize(static_cast<size_t>(kept));
  std::sort(w.merged.begin(), w.merged.end(), [](auto& a, auto& b) { return a.id < b.id; });
  double sum = 0;
  for (const TokenLogit& token : w.merged) sum += weigh(token.z);
  double left = w.uniform() * sum;
  for (const TokenLogit& token : w.merged) {
    w.id = token.id;
    left -= weigh(token.z);
    if (left < 0) break;
  }
  w.decided(w.id);
}

// Rounds of one exchange each until all rows are done.
void Sampler::run(std::span<Work> works) {
  const int ranks = comm_.size();
  const int64_t n = static_cast<int64_t>(works.size());
  std::vector<int64_t> at(works.size() + 1);
  for (;;) {
    for (size_t i = 0; i < works.size(); ++i) at[i + 1] = at[i] + works[i].message_bytes();
    const size_t bytes = static_cast<size_t>(at.back());
    if (bytes == 0) break;
    if (device_ != nullptr) ask_device(works);
    message_.resize(bytes);
    const int threads = static_cast<int>(std::clamp<int64_t>(n, 1, threads_));
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < n; ++i)
      if (Work& w = works[static_cast<size_t>(i)]; w.stage != Work::Stage::done)
        summarise(w, message_.data() + at[static_cast<size_t>(i)]);
    const std::byte* all = message_.data();
    if (ranks > 1) {
      gathered_.resize(bytes * static_cast<size_t>(ranks));
      comm_.all_gather(message_.data(), gathered_.data(), static_cast<int64_t>(bytes));
      all = gathered_.data();
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < n; ++i) {
      Work& w = works[static_cast<size_t>(i)];
      if (w.stage == Work::Stage::done) continue;
      std::vector<const std::byte*> messages;
      for (int r = 0; r < ranks; ++r)
        messages.push_back(all + static_cast<size_t>(r) * bytes + at[static_cast<size_t>(i)]);
      decide(w, messages);
    }
    for (const Work& w : works) {
      if (w.trouble == Work::Trouble::not_finite)
        fail(ErrorKind::runtime,
             "the model's logits at position {} are not finite: its weights are damaged or the run that made them "
             "diverged",
             w.row.position);
      if (w.trouble == Work::Trouble::masked)
        fail(ErrorKind::runtime, "no token can follow at position {}: all logits are masked (-inf)", w.row.position);
    }
  }
  for (Work& w : works) {
    w.out->id = w.id;
    w.out->logprob = w.tells_logprob() ? static_cast<float>(static_cast<double>(w.raw) - w.lse) : 0;
  }
}

void Sampler::sample(std::span<const SampleRow> rows, Sampled* out) {
  if (works_.size() < rows.size()) works_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    Work& w = works_[i];
    w.start(rows[i], out + i);
    const Truncation t = w.truncation(vocab_);
    if (w.draws() && !t.none()) w.n_best = t.top_k > 0 ? std::min(t.top_k, kMostBest) : kNucleus;
    w.n_raw = std::clamp<int64_t>(w.params().top_logprobs, 0, vocab_);
    place(w, static_cast<int64_t>(i));
  }
  run({works_.data(), rows.size()});
}

void Sampler::score(float* logits, std::span<const int32_t> target, int64_t top_logprobs, Sampled* out) {
  const int64_t columns = mine_.end - mine_.begin;
  if (works_.size() < target.size()) works_.resize(target.size());
  for (size_t i = 0; i < target.size(); ++i) {
    CHECK(target[i] >= 0 && target[i] < vocab_, "id %d of a vocabulary of %ld", target[i], vocab_);
    Work& w = works_[i];
    w.start({.logits = logits + static_cast<int64_t>(i) * columns,
             .params = nullptr,
             .counts = nullptr,
             .position = static_cast<int64_t>(i),
             .n_output = 0},
            out + i);
    w.scored = true;
    w.id = target[i];
    w.n_raw = std::clamp<int64_t>(top_logprobs, 0, vocab_);
    place(w, static_cast<int64_t>(i));
  }
  run({works_.data(), target.size()});
}

}  // namespace rw
