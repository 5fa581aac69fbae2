// Requests as RFC 9110 and RFC 9112 write them, given whole and byte by byte.
#include "libcore/net/http_parser.h"

#include <doctest/doctest.h>

#include <string>

using namespace rw;
using Event = HttpParser::Event;

namespace {

// Feeds `bytes` in pieces of `piece`, as a session does; the last event.
Event feed_all(HttpParser& parser, const std::string& bytes, size_t piece) {
  std::string in;
  Event last = Event::more;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    in += bytes.substr(at, piece);
    for (;;) {
      const HttpParser::Step step = parser.feed(in);
      in.erase(0, step.taken);
      last = step.event;
      if (last != Event::head) break;
    }
    if (last != Event::more) break;
  }
  return last;
}

int failure(const std::string& bytes, int64_t header_bytes = 4096, int64_t body_bytes = 1000) {
  int status = 0;
  for (const size_t piece : {bytes.size(), size_t{1}, size_t{7}}) {
    HttpParser parser(header_bytes, body_bytes);
    const int now = feed_all(parser, bytes, piece) == Event::failed ? parser.status() : 0;
    if (piece == bytes.size()) status = now;
    // A line may be judged only once it is complete.
    CHECK_MESSAGE((now == status || now == 0), "in pieces of " << piece);
  }
  return status;
}

}  // namespace

TEST_CASE("a request is the same whole and in pieces") {
  // RFC 9112 7.1 chunked coding with extensions and trailers; 5.2 folding is not sent.
  const std::string chunked =
      "POST /a%20b/c%2Fd?x=%31 HTTP/1.1\r\nHost: h\r\nX-Name:  v 1 \r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;ext=\"q\"\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\nHost: evil\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{17}, chunked.size()}) {
    CAPTURE(piece);
    HttpParser parser(4096, 1000);
    REQUIRE(feed_all(parser, chunked, piece) == Event::done);
    const HttpRequest& q = parser.request();
    CHECK(q.method == "POST");
    CHECK(q.path == "/a b/c/d");
    CHECK(q.query == "x=%31");
    CHECK(q.body == "hello 0123456789");
    REQUIRE(q.header("x-name") != nullptr);
    CHECK(*q.header("x-name") == "v 1");
    CHECK(q.header("trailer") == nullptr);
    CHECK(*q.header("host") == "h");
    CHECK(parser.keep_alive());
  }
}

TEST_CASE("a last chunk that comes byte by byte") {
  HttpParser parser(4096, 1000);
  CHECK(feed_all(parser, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1) ==
        Event::done);
  CHECK(parser.request().body.empty());
}

TEST_CASE("what follows a request is left for the next one") {
  HttpParser parser(4096, 1000);
  const std::string two = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.0\r\n\r\n";
  HttpParser::Step step = parser.feed(two);
  CHECK(step.event == Event::head);
  const size_t first = step.taken;
  CHECK(two.substr(first, 6) == "GET /2");
  step = parser.feed(std::string_view(two).substr(first));
  CHECK(step.event == Event::done);
  CHECK(step.taken == 0);
  parser.reset();
  CHECK_FALSE(parser.started());
  CHECK(feed_all(parser, two.substr(first), 5) == Event::done);
  CHECK(parser.request().path == "/2");
  CHECK(parser.http_1_0());
  CHECK_FALSE(parser.keep_alive());
}

TEST_CASE("targets") {
  const auto path_of = [](const std::string& target) {
    HttpParser parser(4096, 1000);
    if (feed_all(parser, "OPTIONS " + target + " HTTP/1.1\r\nHost: h\r\n\r\n", 9) != Event::done)
      return std::string("-");
    return parser.request().path + "|" + parser.request().query;
  };
  CHECK(path_of("/") == "/|");
  CHECK(path_of("/?") == "/|");
  CHECK(path_of("/p?a?b") == "/p|a?b");
  CHECK(path_of("*") == "*|");
  CHECK(path_of("http://host:80/p?q") == "/p|q");
  CHECK(path_of("http://host") == "/|");
  CHECK(path_of("/a://b") == "/a://b|");
  CHECK(path_of("/%C3%BC") == "/\xC3\xBC|");
  for (const char* bad : {"/%", "/%1", "/%g1", "/%1g", "/a%00b"}) CHECK(path_of(bad) == "-");
}

TEST_CASE("bytes that are no request") {
  for (const char* bad :
       {"\x16\x03\x01\x02", "GET\r\n", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\nHost: h\n\n",
        "GET / HTTP/1.1\r\nHost h\r\n\r\n", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nX: a\x01\r\n\r\n"})
    CHECK(failure(bad) == 400);
}

TEST_CASE("two readings of a length are refused (request smuggling, RFC 9112 6.3)") {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  for (const char* bad :
       {"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "Content-Length: -1\r\n", "Content-Length: 3x\r\n",
        "Content-Length: \r\n", "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"})
    CHECK(failure(head + bad + "\r\nabc") == 400);
  for (const char* bad : {"gzip", "gzip, chunked", "chunked, gzip", "identity"})
    CHECK(failure(head + "Transfer-Encoding: " + bad + "\r\n\r\n0\r\n\r\n") == 501);
  for (const char* bad : {"x\r\n", "5\r\nhelloXX\r\n", "-1\r\n", "5 x\r\n", "FFFFFFFFFFFFFFFFF\r\n"})
    CHECK(failure(head + "Transfer-Encoding: chunked\r\n\r\n" + bad) == 400);
}

TEST_CASE("limits") {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  CHECK(failure(head + "Content-Length: 1000\r\n\r\n" + std::string(1000, 'b')) == 0);
  CHECK(failure(head + "Content-Length: 1001\r\n\r\n") == 413);
  CHECK(failure(head + "Transfer-Encoding: chunked\r\n\r\n3E8\r\n" + std::string(1000, 'b') + "\r\n0\r\n\r\n") == 0);
  CHECK(failure(head + "Transfer-Encoding: chunked\r\n\r\n3E8\r\n" + std::string(1000, 'b') + "\r\n1\r\nb\r\n") == 413);
  CHECK(failure(head + "X: " + std::string(5000, 'x')) == 431);
  CHECK(failure("GET /" + std::string(5000, 'x')) == 431);
  std::string many = head;
  for (int i = 0; i < 1000; ++i) many += "A: b\r\n";
  CHECK(failure(many) == 431);
  CHECK(failure(head + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(5000, 'x')) >= 400);
  CHECK(failure(head + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + std::string(5000, 'x')) >= 400);
  CHECK(failure(head + "Expect: cake\r\n\r\n") == 417);
}
