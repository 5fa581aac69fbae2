// Server-sent events out of a body's bytes, piece by piece (WHATWG HTML, 9.2.6). Pure; an event that lies whole in the
// bytes fed, with one data line, is not copied.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rw {

class SseParser {
 public:
  explicit SseParser(int64_t max_event_bytes = 16 << 20) : max_event_bytes_(max_event_bytes) {}
  enum class Event : uint8_t { more, event, failed };  // more: all bytes are used; failed: an event beyond the bound
  struct Step {
    Event event;
    size_t taken;           // bytes used from the front; after an event feed the others
    std::string_view data;  // of Event::event, valid until the next call: its data lines, a line feed between them
  };
  Step feed(std::string_view bytes);
  // The body has ended: an event whose blank line is missing is told too, since servers end their streams so.
  Step finish();
  void reset();

 private:
  bool take_line(std::string_view bytes, size_t& at, std::string_view& line);
  void take_data(std::string_view line);

  const int64_t max_event_bytes_;
  bool first_ = true, after_cr_ = false, told_ = false, has_data_ = false, in_place_ = false;
  std::string line_;       // begun, its end has not come
  std::string_view view_;  // of the only data line so far, inside the bytes fed (in_place_)
  std::string data_;       // else
};

}  // namespace rw
