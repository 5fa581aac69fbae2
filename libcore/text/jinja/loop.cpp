#include "libcore/text/jinja/loop.h"

#include <algorithm>

#include "libcore/text/jinja/compare.h"

namespace rw::jinja {

Loop::Loop(Heap& heap, const Value& items, std::function<bool(const Value&)> wanted, int64_t depth)
    : heap_(heap),
      source_(items.has_items() ? items : heap.list(iterate(heap, items))),
      wanted_(std::move(wanted)),
      depth_(depth) {}

// The next wanted item, whatever was looked at ahead.
std::optional<Value> Loop::pull() {
  if (rest_) return at_ < rest_->size() ? std::optional((*rest_)[at_++]) : std::nullopt;
  if (ended_) return std::nullopt;
  size_t& at = source_.is(Kind::iterator) ? source_.cursor() : at_;
  while (at < source_.items().size()) {
    heap_.work(1);
    const Value item = source_.items()[at++];
    if (!wanted_ || wanted_(item)) return item;
  }
  return std::nullopt;
}

const std::optional<Value>& Loop::peek() {
  if (!looked_ahead_) {
    after_ = pull();
    looked_ahead_ = after_.has_value();
  }
  return after_;
}

bool Loop::advance() {
  std::optional<Value> item = looked_ahead_ ? std::move(after_) : pull();
  looked_ahead_ = false;
  after_.reset();
  if (!item) return false;
  ++index0_;
  before_ = std::move(current_);
  current_ = *std::move(item);
  return true;
}

int64_t Loop::length() {
  if (length_ >= 0) return length_;
  if (!wanted_ && !source_.is(Kind::iterator)) {
    length_ = static_cast<int64_t>(source_.items().size());
    return length_;
  }
  std::vector<Value> rest;
  while (auto item = pull()) rest.push_back(*std::move(item));
  length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + (looked_ahead_ ? 1 : 0);
  rest_ = std::move(rest);
  at_ = 0;
  return length_;
}

void Loop::end() {
  ended_ = true;
  if (length_ < 0) length_ = index0_ + 1;
  source_ = Value();
  wanted_ = nullptr;
  rest_.reset();
  after_.reset();
  looked_ahead_ = false;
  current_ = before_ = Value();
  last_changed_.reset();
}

Value Loop::cycle(const std::vector<Value>& values) const {
  if (values.empty()) throw Fault("loop.cycle: expected items, found none");
  return values[static_cast<size_t>(std::max<int64_t>(0, index0_)) % values.size()];
}

Value Loop::changed(const std::vector<Value>& values) {
  if (ended_) throw Fault("loop.changed: the loop has ended");
  const bool same = last_changed_ && last_changed_->size() == values.size() &&
                    std::equal(values.begin(), values.end(), last_changed_->begin(),
                               [&](const Value& a, const Value& b) { return equals(heap_, a, b); });
  if (!same) last_changed_ = values;
  return Value::boolean(!same);
}

Value Loop::attribute(const std::shared_ptr<Loop>& self, std::string_view name) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0_);
  if (name == "revindex0") return Value::integer(length() - index0_ - 1);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") return index0_ == 0 ? heap_.undefined("there is no previous item") : before_;
  if (name == "nextitem") return peek() ? *peek() : heap_.undefined("there is no next item");
  if (name == "cycle")
    return heap_.object("bound method LoopContext.cycle",
                        [self](const Arguments& a) { return self->cycle(a.positional); });
  if (name == "changed")
    return heap_.object("bound method LoopContext.changed",
                        [self](const Arguments& a) { return self->changed(a.positional); });
  return heap_.undefined("'loop' has no attribute '" + std::string(name) + "'");
}

}  // namespace rw::jinja
