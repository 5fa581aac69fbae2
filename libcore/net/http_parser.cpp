#include "libcore/net/http_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <optional>

namespace rw {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using View = boost::beast::string_view;

std::string text(View view) { return {view.data(), view.size()}; }

std::string lower(View view) {
  std::string s = text(view);
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return s;
}

constexpr int64_t kReserve = 64 << 10;  // a Content-Length is a promise: memory is taken as the bytes come

class Reader final : public http::basic_parser<true> {
 public:
  HttpRequest request;
  std::string target;
  int version = 11, n_host = 0;
  bool foreign_coding = false;

 private:
  void on_request_impl(http::verb, View method, View request_target, int request_version, error_code&) override {
    request.method = text(method);
    target = text(request_target);
    version = request_version;
  }
  void on_response_impl(int, View, int, error_code&) override {}
  void on_field_impl(http::field field, View name, View value, error_code&) override {
    if (is_header_done()) return;  // a trailer
    if (field == http::field::host) ++n_host;
    if (field == http::field::transfer_encoding) foreign_coding |= lower(value) != "chunked";
    request.headers.emplace_back(lower(name), text(value));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>& length, error_code&) override {
    if (length) request.body.reserve(static_cast<size_t>(std::min<uint64_t>(*length, kReserve)));
  }
  size_t on_body_impl(View body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, View, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, View body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {}
};

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool decode_path(std::string_view raw, std::string& decoded) {
  decoded.clear();
  decoded.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    char c = raw[i];
    if (c == '%') {
      if (i + 2 >= raw.size() || hex(raw[i + 1]) < 0 || hex(raw[i + 2]) < 0) return false;
      c = static_cast<char>(hex(raw[i + 1]) * 16 + hex(raw[i + 2]));
      if (c == 0) return false;
      i += 2;
    }
    decoded.push_back(c);
  }
  return true;
}

struct HttpParser::Impl {
  int64_t max_header_bytes, max_body_bytes;
  std::optional<Reader> reader;
  int64_t header_bytes = 0;  // taken so far
  bool head_told = false, waits_for_continue = false;
  int status = 0;
  std::string message;

  void fail(int code, std::string why) {
    status = code;
    message = std::move(why);
  }

  void fail(const error_code& error) {
    if (error == http::error::header_limit)
      fail(431, "the request's header is larger than " + std::to_string(max_header_bytes) + " bytes");
    else if (error == http::error::body_limit)
      fail(413, "the request's body is larger than " + std::to_string(max_body_bytes) + " bytes");
    else fail(400, "not an HTTP request: " + error.message());
  }

  // What the header says beyond its syntax; false: failed.
  bool judge_head() {
    HttpRequest& request = reader->request;
    std::string_view target = reader->target;
    if (const size_t scheme = target.find("://"); target[0] != '/' && scheme != std::string_view::npos) {
      const size_t slash = target.find('/', scheme + 3);  // RFC 9112 3.2.2: absolute form
      target = slash == std::string_view::npos ? "/" : target.substr(slash);
    }
    const size_t mark = target.find('?');
    if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
    if (!decode_path(target.substr(0, mark), request.path)) {
      fail(400, "the path holds a bad percent escape");
      return false;
    }
    if (reader->n_host > 1 || (reader->n_host == 0 && reader->version >= 11)) {
      fail(400, "expected one Host header, found " + std::to_string(reader->n_host));
      return false;
    }
    if (reader->foreign_coding) {
      fail(501, "the only transfer encoding understood is chunked");
      return false;
    }
    if (const std::string* expect = request.header("expect"); expect != nullptr && reader->version >= 11) {
      if (lower(*expect) != "100-continue") {
        fail(417, "the only expectation understood is 100-continue");
        return false;
      }
      waits_for_continue = true;
    }
    return true;
  }
};

HttpParser::HttpParser(int64_t max_header_bytes, int64_t max_body_bytes)
    : impl_(new Impl{.max_header_bytes = max_header_bytes, .max_body_bytes = max_body_bytes}) {
  reset();
}
HttpParser::~HttpParser() = default;

void HttpParser::reset() {
  Impl& p = *impl_;
  p.reader.emplace();
  // Beast's own limit bounds a single line; the sum is counted in feed.
  p.reader->header_limit(static_cast<uint32_t>(p.max_header_bytes));
  p.reader->body_limit(static_cast<uint64_t>(p.max_body_bytes));
  p.header_bytes = 0;
  p.head_told = p.waits_for_continue = false;
}

HttpParser::Step HttpParser::feed(std::string_view bytes) {
  Impl& p = *impl_;
  Reader& reader = *p.reader;
  size_t taken = 0;
  const auto step = [&](Event event) { return Step{event, taken}; };
  const auto failed = [&](const error_code& error) {
    p.fail(error);
    return step(Event::failed);
  };
  if (!p.head_told) {
    error_code error;
    while (!reader.is_header_done() && !error) {
      taken += reader.put(boost::asio::buffer(bytes.data() + taken, bytes.size() - taken), error);
      if (error && error != http::error::need_more) return failed(error);
      const size_t seen = reader.is_header_done() ? taken : bytes.size();
      if (p.header_bytes + static_cast<int64_t>(seen) > p.max_header_bytes) return failed(http::error::header_limit);
    }
    p.header_bytes += static_cast<int64_t>(taken);
    if (!reader.is_header_done()) return step(Event::more);
    p.head_told = true;
    if (!p.judge_head()) return step(Event::failed);
    reader.eager(true);
    return step(Event::head);
  }
  if (!reader.is_done()) {
    error_code error;
    taken = reader.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
    if (error && error != http::error::need_more) return failed(error);
    // A chunk's header or the trailers, of which Beast bounds neither.
    if (static_cast<int64_t>(bytes.size() - taken) > p.max_header_bytes && !reader.is_done())
      return failed(http::error::header_limit);
  }
  return step(reader.is_done() ? Event::done : Event::more);
}

bool HttpParser::started() const { return impl_->reader->got_some(); }
HttpRequest& HttpParser::request() { return impl_->reader->request; }
bool HttpParser::keep_alive() const { return impl_->reader->keep_alive(); }
bool HttpParser::http_1_0() const { return impl_->reader->version < 11; }
bool HttpParser::expects_continue() const { return impl_->waits_for_continue; }
bool HttpParser::body_follows() const { return !impl_->reader->is_done(); }
int HttpParser::status() const { return impl_->status; }
const std::string& HttpParser::message() const { return impl_->message; }

}  // namespace rw
