// One pass over a JSON text that takes what its caller names and passes over the rest: a stream's chunks are read by
// the ten thousand a second. As strict as a parser (RFC 8259, UTF-8 included).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rw {

class JsonScan {
 public:
  explicit JsonScan(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}
  bool ok() const { return ok_; }
  // Only blanks are left, and all before was JSON.
  bool finished();
  // What the next value begins with: { [ " t f n, '0' for a number; 0 when there is none.
  char kind();

  // Calls on_key(name) for each member of the object that comes next; it must take the member's value by one of the
  // calls below.
  template <typename OnKey>
  void object(const OnKey& on_key) {
    if (!open('{') || closes('}')) return;
    std::string name;
    do {
      name.clear();
      if (kind() != '"') ok_ = false;
      else string(&name);
      if (!take(':')) return;
      on_key(std::string_view(name));
    } while (ok_ && comma());
    close('}');
  }
  // Calls on_item() for each item of the array that comes next; it must take the item.
  template <typename OnItem>
  void array(const OnItem& on_item) {
    if (!open('[') || closes(']')) return;
    do on_item();
    while (ok_ && comma());
    close(']');
  }
  // Appends the string that comes next; null: only passes over it. Any other kind of value is passed over.
  void string(std::string* out);
  // `otherwise` for any other kind of value, which is passed over.
  double number(double otherwise);
  int64_t integer(int64_t otherwise);  // a number that is none, or too large, is `otherwise` too
  void skip();

 private:
  bool open(char bracket);
  bool closes(char bracket);
  void close(char bracket);
  bool take(char c);
  bool comma();
  void blanks();
  void take_string(std::string* out);
  bool take_escape(std::string* out);
  bool take_code_unit(uint32_t& unit);
  bool take_utf8();
  std::string_view take_number();
  void take_word(std::string_view word);

  static constexpr int kMaxDepth = 256;  // nothing real is deeper
  const char* at_;
  const char* end_;
  int depth_ = 0;
  bool ok_ = true;
};

}  // namespace rw
