#include "libcore/plan/serve/serve_price.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/plan/serve/serve_forward.h"

namespace rw {
namespace {

constexpr const char* kAttention = "paged_attention";

bool is_product(const OpCall& call) { return call.op == "gemm" || call.op == "quant_gemm"; }

// Seconds that a number of rows or logits takes, of one layer or of all else.
struct Seconds {
  double products = 0, other = 0, comm = 0;
  Seconds operator-(const Seconds& b) const { return {products - b.products, other - b.other, comm - b.comm}; }
};

// A quantity of paged attention, linear in what PricedStep says.
struct Linear {
  double row = 0, pair = 0, context = 0;
  double at(const PricedStep& s) const {
    return row * static_cast<double>(s.rows) + pair * s.pairs + context * s.context;
  }
};

const OpCall& attention_of(const ForwardWork& work) {
  const auto call = std::find_if(work.ops.begin(), work.ops.end(), [](const OpCall& c) { return c.op == kAttention; });
  CHECK(call != work.ops.end(), "a paged forward without %s", kAttention);
  return *call;
}

}  // namespace

void PricedStep::add(int64_t first, int64_t n, bool sample) {
  const auto before = static_cast<double>(first), added = static_cast<double>(n);
  rows += n;
  logits += sample ? 1 : 0;
  pairs += added * before + added * (added + 1) / 2;
  context += before + added;
}

PricedStep step_shape(const StepPlan& plan) {
  PricedStep shape;
  for (const SequenceRows& r : plan.rows) shape.add(r.first, r.n, r.sample);
  return shape;
}

double serving_op_seconds(const OpCall& call, const DeviceType& device, DType t) {
  const double tiled = op_seconds(call, device, t);
  if (!is_product(call) || device.compute_units <= 1 || call.shape.m <= 0) return tiled;
  DeviceType whole = device;
  whole.compute_units = 1;  // as if it were one unit
  OpCall padded = call;
  const double rows = static_cast<double>((call.shape.m + 15) / 16 * 16);
  padded.cost.flops *= 2 * rows / static_cast<double>(call.shape.m);
  return std::min(tiled, op_seconds(padded, whole, t));
}

struct StepPrice::Impl {
  explicit Impl(const StepPriceQuery& q)
      : tp(q.tp),
        layers(static_cast<double>(q.runner.model.layers)),
        t(q.runner.precision),
        device(q.device),
        collective(q.collective),
        overhead_s(q.overhead_s),
        one(q.runner, q.tp, 1),
        two(q.runner, q.tp, 2) {
    const VocabRange vocab = vocab_range(q.runner.model, {.size = q.tp, .rank = 0});
    logit_bytes = static_cast<double>(vocab.end - vocab.begin) * sizeof(float);
    fit_attention();
  }

  // Three batches whose (rows, pairs, context) are (1, 1, 1), (1, 2, 2) and (2, 3, 2).
  void fit_attention() {
    const OpCall a = attention_of(one.run({{1, 1}})), b = attention_of(one.run({{1, 2}})),
                 c = attention_of(one.run({{2, 2}}));
    attention = a;
    const auto fit = [](double at_a, double at_b, double at_c) {
      const double pair_and_context = at_b - at_a, row = at_a - pair_and_context,
                   pair = at_c - 2 * row - 2 * pair_and_context;
      return Linear{.row = row, .pair = pair, .context = pair_and_context - pair};
    };
    flops = fit(a.cost.flops, b.cost.flops, c.cost.flops);
    read = fit(a.cost.bytes_read, b.cost.bytes_read, c.cost.bytes_read);
    written = fit(a.cost.bytes_written, b.cost.bytes_written, c.cost.bytes_written);
  }

  Seconds price(const ForwardWork& work) const {
    Seconds s;
    for (const OpCall& call : work.ops)
      if (call.op != kAttention) (is_product(call) ? s.products : s.other) += serving_op_seconds(call, device, t);
    if (tp == 1) return s;
    for (const auto& [kind, count] : work.comm)
      s.comm += static_cast<double>(count.calls) *
                collective(kind, static_cast<double>(count.bytes) / static_cast<double>(count.calls));
    return s;
  }

  // What a forward of so many rows takes beside attention.
  const Seconds& of_rows(int64_t n) {
    return known(by_rows, n, [&] {
      const Seconds shallow = price(one.run({{n, n}})), layer = price(two.run({{n, n}})) - shallow;
      const double more = layers - 1;
      return Seconds{shallow.products + more * layer.products, shallow.other + more * layer.other,
                     shallow.comm + more * layer.comm};
    });
  }

  // The head, for so many logits. On the host the rows are picked one by one; a device gathers them in one op. The
  // sampler reads every logit once.
  const Seconds& of_logits(int64_t n) {
    return known(by_logits, n, [&] {
      ForwardWork work = one.logits(n);
      OpCall gather{
          .op = "cast", .scope = {}, .shape = {}, .cost = {.bytes_read = logit_bytes * static_cast<double>(n)}};
      std::erase_if(work.ops, [&](const OpCall& call) {
        if (call.op != "cast") return false;
        gather.cost.bytes_read += call.cost.bytes_read;
        gather.cost.bytes_written += call.cost.bytes_written;
        return true;
      });
      work.ops.push_back(gather);
      return price(work);
    });
  }

  template <class Make>
  static const Seconds& known(std::vector<Seconds>& kept, int64_t n, const Make& make) {
    const auto at = static_cast<size_t>(n);
    if (at >= kept.size()) kept.resize(at + 1, {.products = -1});
    if (kept[at].products < 0) kept[at] = make();
    return kept[at];
  }

  double attention_s(const PricedStep& shape) {
    attention.shape.m = shape.rows;
    attention.cost = {.flops = flops.at(shape), .bytes_read = read.at(shape), .bytes_written = written.at(shape)};
    return layers * serving_op_seconds(attention, device, t);
  }

  int64_t tp;
  double layers;
  DType t;
  DeviceType device;
  CollectiveSeconds collective;
  double overhead_s, logit_bytes;
  ServeForward one, two;
  OpCall attention;
  Linear flops, read, written;
  std::vector<Seconds> by_rows, by_logits;
};

StepPrice::StepPrice(const StepPriceQuery& query) : impl_(std::make_unique<Impl>(query)) {}
StepPrice::~StepPrice() = default;
StepPrice::StepPrice(StepPrice&&) noexcept = default;

StepParts StepPrice::parts(const PricedStep& shape) {
  if (shape.rows == 0) return {};
  const Seconds& body = impl_->of_rows(shape.rows);
  StepParts p{.products = body.products,
              .attention = impl_->attention_s(shape),
              .other = body.other,
              .comm = body.comm,
              .overhead = impl_->overhead_s};
  if (shape.logits == 0) return p;
  const Seconds& head = impl_->of_logits(shape.logits);
  p.products += head.products;
  p.other += head.other;
  p.comm += head.comm;
  return p;
}

}  // namespace rw
