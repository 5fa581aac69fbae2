// A for loop under way: its items, one ahead where the template looks ahead, and what it may ask of "loop".
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "libcore/text/jinja/value.h"

namespace rw::jinja {

class Loop {
 public:
  // Items for which `wanted` (empty: all) holds; it is asked when an item's turn comes.
  Loop(Heap& heap, const Value& items, std::function<bool(const Value&)> wanted, int64_t depth);
  // Goes to the next item.
  bool advance();
  const Value& current() const { return current_; }
  int64_t depth() const { return depth_; }
  int64_t length();
  Value attribute(const std::shared_ptr<Loop>& self, std::string_view name);
  // Lets go of the items; the object "loop" may live on.
  void end();

 private:
  std::optional<Value> pull();
  const std::optional<Value>& peek();
  Value cycle(const std::vector<Value>& values) const;
  Value changed(const std::vector<Value>& values);

  Heap& heap_;
  Value source_;
  std::function<bool(const Value&)> wanted_;
  const int64_t depth_;
  size_t at_ = 0;
  std::optional<std::vector<Value>> rest_;  // once the length was asked of items that had none
  std::optional<Value> after_;
  bool looked_ahead_ = false, ended_ = false;
  Value current_, before_;
  std::optional<std::vector<Value>> last_changed_;
  int64_t index0_ = -1, length_ = -1;
};

}  // namespace rw::jinja
