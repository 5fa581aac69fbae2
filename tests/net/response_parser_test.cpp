// Replies against RFC 9112: message format (2, 4, 5), body length (6.3), chunks (7.1), connections (9).
#include "libcore/net/response_parser.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

using namespace rw;

namespace {

using Event = HttpResponseParser::Event;

struct Read {
  Event last = Event::more;
  int heads = 0, status = 0;
  std::string body, message;
  HttpHeaders headers;
  bool keep_alive = false;
  size_t left = 0;  // bytes behind the reply
};

// All of `bytes` in pieces, then the connection's end unless the reply was complete before.
Read read(std::string_view bytes, size_t piece, HttpResponseParser::Body body = HttpResponseParser::Body::as_said,
          int64_t max_header_bytes = 1000) {
  HttpResponseParser parser(max_header_bytes);
  parser.reset(body);
  Read r;
  const auto take = [&](const HttpResponseParser::Step& step) {
    r.last = step.event;
    r.body += step.body;
    if (step.event == Event::head) ++r.heads;
    return step.event == Event::head || step.event == Event::body;
  };
  const auto over = [&] { return r.last == Event::done || r.last == Event::failed; };
  for (size_t at = 0; at < bytes.size() && !over(); at += piece) {
    const std::string part(bytes.substr(at, piece));
    std::string_view left = part;
    HttpResponseParser::Step step{};
    do {
      step = parser.feed(left);
      left.remove_prefix(step.taken);
    } while (take(step));
    r.left = left.size() + bytes.substr(at).size() - part.size();
  }
  if (!over()) take(parser.finish());
  r.status = parser.status();
  r.headers = parser.headers();
  r.keep_alive = parser.keep_alive();
  r.message = parser.message();
  return r;
}

}  // namespace

TEST_CASE("bodies of every length rule, in pieces of every size") {
  struct Case {
    std::string bytes;
    int status;
    std::string body;
    bool keep_alive;
    size_t left = 0;
  };
  const std::vector<Case> cases = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1", 200, "hello", true, 8},
      {"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", 200, "", true},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n00B ; x=\"y\"\r\n, my "
       "world\n\r\n0\r\nTrailer: t\r\n\r\nX",
       200, "hello, my world\n", true, 1},
      {"HTTP/1.1 200 OK\r\nConnection: Close\r\nTransfer-Encoding: Chunked\r\nContent-Length: "
       "3\r\n\r\n1\r\na\r\n0\r\n\r\n",
       200, "a", false},
      {"HTTP/1.1 404 Not Found\r\nServer: x\r\n\r\nuntil the end", 404, "until the end", false},
      {"HTTP/1.0 200\r\nContent-Length: 2\r\n\r\nok", 200, "ok", false},
      {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: x, Keep-Alive\r\n\r\nok", 200, "ok", true},
      {"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n", 204, "", true},
      {"HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
       "1\r\n\r\nz",
       200, "z", true},
      {"\r\nHTTP/1.1 200 OK\nContent-Length: 1\n\ny", 200, "y", true},
      {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nsame", 200, "same", true},
  };
  for (const Case& c : cases)
    for (size_t piece = 1; piece <= c.bytes.size() + 1; ++piece) {
      CAPTURE(c.bytes);
      CAPTURE(piece);
      const Read r = read(c.bytes, piece);
      CHECK(r.last == Event::done);
      CHECK(r.heads == 1);
      CHECK(r.status == c.status);
      CHECK(r.body == c.body);
      CHECK(r.keep_alive == c.keep_alive);
      CHECK(r.left == c.left);
    }
}

TEST_CASE("a reply to HEAD has no body; names are in lower case, values without blanks") {
  const Read r = read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: \t b c \r\nx-a: second\r\n\r\n", 7,
                      HttpResponseParser::Body::none);
  CHECK(r.last == Event::done);
  CHECK(r.headers == HttpHeaders{{"content-length", "5"}, {"x-a", "b c"}, {"x-a", "second"}});
}

TEST_CASE("what is no reply is refused, and said") {
  const std::string ok = "HTTP/1.1 200 OK\r\n", chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"SSH-2.0-x\r\n", "expected \"HTTP/1.1 STATUS\", found \"SSH-2.0-x\""},
      {"HTTP/2 200\r\n", "expected \"HTTP/1.1 STATUS\""},
      {"HTTP/1.1 2x0 OK\r\n", "expected \"HTTP/1.1 STATUS\""},
      {"HTTP/1.1 099 OK\r\n", "expected \"HTTP/1.1 STATUS\""},
      {"HTTP/1.1 101 Switching\r\n\r\n", "found 101"},
      {ok + "no colon\r\n", "expected a header, found \"no colon\""},
      {ok + " folded: x\r\n", "expected a header"},
      {ok + "Blank : x\r\n", "expected a header"},
      {ok + "Content-Length: -1\r\n\r\n", "expected one content-length, found \"-1\""},
      {ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "expected one content-length"},
      {ok + "Content-Length: 99999999999999999999\r\n\r\n", "expected one content-length"},
      {ok + "Transfer-Encoding: gzip\r\n\r\n", "expected the transfer-encoding chunked, found \"gzip\""},
      {chunked + "x\r\n", "expected a chunk's size, found \"x\""},
      {chunked + "ffffffffffffffff\r\n", "expected a chunk's size"},
      {chunked + "1\r\nab", "the server closed the connection before the reply's end"},
      {chunked + "1\r\nab\r\n", "expected a chunk's end, found \"b\""},
      {chunked + "5\r\nab", "the server closed the connection before the reply's end"},
      {ok + "Content-Length: 5\r\n\r\nhell", "the server closed the connection before the reply's end"},
      {ok + "Conten", "the server closed the connection inside the reply's head"},
      {"", "the server closed the connection without a reply"},
      {"HTT", "the server closed the connection inside the reply's head"},
      {"HTTP/2", "expected \"HTTP/1.1 STATUS\", found \"HTTP/2\""},
      {"SSH-2.0", "expected \"HTTP/1.1 STATUS\", found \"SSH-2.0\""},
      {ok + "X: " + std::string(1000, 'x'), "expected a head of at most 1000 bytes"},
      {chunked + "1;" + std::string(1000, 'x'), "expected a head of at most 1000 bytes"},
      {std::string("HTTP/1.1 \x01\xff\r\n"), "found \"HTTP/1.1 ??\""},
  };
  for (const auto& [bytes, message] : cases)
    for (const size_t piece : {size_t{1}, size_t{3}, bytes.size() + 1}) {
      CAPTURE(bytes);
      const Read r = read(bytes, piece);
      CHECK(r.last == Event::failed);
      CHECK(r.message.find(message) != std::string::npos);
    }
}

TEST_CASE("one reply after the other") {
  HttpResponseParser parser;
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(parser.started());
    const std::string_view bytes = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    CHECK(parser.feed(bytes).event == Event::head);
    CHECK(parser.started());
    CHECK(parser.feed("").event == Event::done);
    CHECK(parser.feed("more").event == Event::done);
    CHECK(parser.header("content-length") != nullptr);
    CHECK(parser.header("none") == nullptr);
    parser.reset();
  }
}
