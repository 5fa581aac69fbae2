#include "libcore/api/request_body.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libcore/api/api_error.h"

namespace rw {
namespace {

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxValues = 1 << 21, kMaxKeysOfObject = 1024, kMaxKeys = 200'000;

class Limits {
 public:
  void see(int depth, Json::parse_event_t event) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      // Told at a start, depth is that of what it lies in.
      if (depth >= kMaxDepth) refuse("", "the body's JSON nests deeper than {} levels", kMaxDepth);
      keys_.resize(static_cast<size_t>(depth) + 2);
      keys_.back() = 0;
    }
    if (event == Event::key) {
      if (++keys_[static_cast<size_t>(depth)] > kMaxKeysOfObject)
        refuse("", "an object of the body's JSON has more than {} keys", kMaxKeysOfObject);
      if (++all_keys_ > kMaxKeys) refuse("", "the body's JSON has more than {} keys", kMaxKeys);
    }
    if (++values_ > kMaxValues) refuse("", "the body's JSON has more than {} values", kMaxValues);
  }

 private:
  std::vector<int64_t> keys_;  // by depth, of the objects that are open
  int64_t all_keys_ = 0, values_ = 0;
};

}  // namespace

Json parse_request_body(std::string_view body) {
  if (body.empty()) refuse("", "the body is empty; expected a JSON object");
  // The parser takes a zero byte for the end, whatever follows.
  if (body.find('\0') != std::string_view::npos) refuse("", "the body is not valid JSON: it has a zero byte");
  Limits limits;
  const Json::parser_callback_t guard = [&](int depth, Json::parse_event_t event, Json&) {
    limits.see(depth, event);
    return true;
  };
  try {
    return Json::parse(body, guard);
  } catch (const Json::exception& e) {
    std::string what = e.what();
    if (const size_t bracket = what.find("] "); bracket != std::string::npos) what = what.substr(bracket + 2);
    // The parser quotes what it read last, which may be megabytes.
    if (what.size() > 300) what = what.substr(0, 300) + "...";
    refuse("", "the body is not valid JSON: {}", what);
  }
}

}  // namespace rw
