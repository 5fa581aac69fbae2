// Requests and replies over loopback sockets.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/error.h"
#include "tests/net/http_client.h"
#include "tests/net/test_server.h"

using namespace rw;
using namespace rw::testing;

TEST_CASE("whole replies, one after the other on a connection") {
  TestServer s;
  Client c(s.start());
  for (const char* path : {"/io", "/worker"}) {
    const Response r = c.ask(get(std::string(path) + "?a=1"));
    CHECK(r.status == 200);
    CHECK(r.body == std::string("GET ") + path + "?a=1 ");
    CHECK(r.header("server") == "rankwright");
    CHECK(r.header("content-type") == "text/plain");
    CHECK(r.header("connection").empty());
    CHECK(r.header("date").ends_with(" GMT"));
  }
  CHECK(c.ask(post("/worker", "body")).body == "POST /worker? body");
  CHECK(c.ask(post("/io", "")).body == "POST /io? ");
  CHECK(c.ask(get("/below/a/b%20c")).body == "GET /below/a/b c? ");
  CHECK(c.ask(get("/below/exact")).body == "exact");
  CHECK(c.ask(get("/length?0")).body.empty());
  CHECK(c.ask(get("/length?20000003")).body == std::string(20000003, 'x'));
  CHECK(s.server.counts().connections == 1);
  CHECK(s.server.counts().requests == 8);
}

TEST_CASE("a large body") {
  TestServer s;
  Client c(s.start());
  std::string body(9999991, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 31 >> 3);
  CHECK(c.ask(post("/worker", body)).body == "POST /worker? " + body);
}

TEST_CASE("pipelined requests are answered in order") {
  TestServer s;
  const int port = s.start();
  Client c(port);
  std::string all;
  for (int i = 0; i < 300; ++i) all += post(i % 3 == 0 ? "/worker" : "/io", std::to_string(i));
  c.send(all);
  for (int i = 0; i < 300; ++i)
    CHECK(c.read().body == std::string("POST ") + (i % 3 == 0 ? "/worker" : "/io") + "? " + std::to_string(i));
  // Byte by byte, with empty lines between.
  Client slow(port);
  for (char byte : post("/io", "x") + "\r\n\r\n" + get("/worker")) slow.send(std::string(1, byte));
  CHECK(slow.read().body == "POST /io? x");
  CHECK(slow.read().body == "GET /worker? ");
}

TEST_CASE("more pipelined requests than are read ahead") {
  TestServer s;
  Client c(s.start());
  std::thread sender([&] {
    for (int i = 0; i < 40; ++i) c.send(post("/worker", std::string(10007, 'a')));
  });
  sender.join();
  for (int i = 0; i < 40; ++i) CHECK(c.read().body.size() == 10007 + 14);
}

TEST_CASE("chunked bodies and Expect: 100-continue") {
  TestServer s;
  Client c(s.start());
  const std::string head = "POST /io HTTP/1.1\r\nHost: x\r\n";
  CHECK(c.ask(head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").body == "POST /io? abcde");
  CHECK(c.ask(head + "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n").status == 100);
  CHECK(c.ask("xyz").body == "POST /io? xyz");
  // No body, no invitation.
  CHECK(c.ask(head + "Content-Length: 0\r\nExpect: 100-continue\r\n\r\n").status == 200);
}

TEST_CASE("HEAD, OPTIONS and HTTP/1.0") {
  TestServer s;
  const int port = s.start();
  Client c(port);
  const Response head = c.ask("HEAD /io HTTP/1.1\r\nHost: x\r\n\r\n", true);
  CHECK(head.status == 200);
  CHECK(head.header("content-length") == "10");
  CHECK(c.ask("HEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", true).status == 404);
  const Response options = c.ask("OPTIONS /io HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(options.status == 204);
  CHECK(options.header("allow") == "GET, POST, HEAD, OPTIONS");
  CHECK(c.ask("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").status == 204);
  CHECK(c.ask(get("/io")).status == 200);
  CHECK(c.ask("GET /io HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").header("connection") == "close");
  CHECK(c.closes());

  Client old(port);
  const Response kept = old.ask("GET /io HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  CHECK(kept.header("connection") == "keep-alive");
  CHECK(old.ask("GET /io HTTP/1.0\r\n\r\n").header("connection") == "close");
  CHECK(old.closes());

  Client stream(port);
  stream.send("GET /keep HTTP/1.0\r\n\r\n");
  const HttpReply reply = s.kept();
  reply.begin(200, "text/event-stream");
  reply.write("one ");
  reply.write("two");
  reply.finish();
  const Response r = stream.read();
  CHECK(r.header("transfer-encoding").empty());
  CHECK(r.body == "one two");
}

TEST_CASE("the server's own errors") {
  TestServer s;
  const int port = s.start();
  Client c(port);
  const Response missing = c.ask(get("/no\"where"));
  CHECK(missing.status == 404);
  CHECK(missing.header("content-type") == "application/json");
  CHECK(
      missing.body ==
      R"({"error":{"message":"there is nothing at /no\"where","type":"invalid_request_error","param":null,"code":404}})");
  const Response method = c.ask("DELETE /io HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(method.status == 405);
  CHECK(method.header("allow") == "GET, POST, HEAD, OPTIONS");
  CHECK(c.ask(post("/nowhere", "with a body")).status == 404);
  CHECK(c.ask(post("/throws", "")).status == 500);
  CHECK(c.ask(post("/throws_worker", "")).status == 500);
  CHECK(c.ask(get("/nobody")).status == 500);
  CHECK(c.ask(get("/io")).status == 200);
  CHECK(c.ask("nonsense\r\n\r\n").status == 400);
  CHECK(c.closes());
  Client torn(port);
  const Response late = torn.ask(get("/throws_late"));
  CHECK_FALSE(late.complete);
  CHECK(Client(port).ask(get("/io")).status == 200);
  CHECK(s.server.counts().bad_requests == 1);
}

TEST_CASE("errors in a shape of one's own, and a gate before the routes") {
  TestServer s;
  s.server.refuse_with([](int status, const std::string& message) { return std::to_string(status) + ":" + message; });
  s.server.before([](const HttpRequest& q, const HttpReply& r) {
    if (q.path == "/silent") return false;
    if (q.path == "/gate_throws") throw std::runtime_error("on purpose");
    if (q.header("authorization") != nullptr) return true;
    r.send(401, "who are you", "text/plain", {{"www-authenticate", "Bearer\r\nx-evil: 1"}});
    return false;
  });
  const int port = s.start();
  Client c(port);
  const Response r = c.ask(get("/io"));
  CHECK(r.status == 401);
  CHECK(r.body == "who are you");
  CHECK(r.header("www-authenticate") == "Bearer  x-evil: 1");
  CHECK(c.ask(get("/nowhere")).status == 401);
  CHECK(c.ask(get("/silent")).status == 500);
  CHECK(c.ask(get("/gate_throws")).status == 500);
  CHECK(c.ask("GET /io HTTP/1.1\r\nHost: x\r\nAuthorization: me\r\n\r\n").status == 200);
  CHECK(c.ask("GET /no HTTP/1.1\r\nHost: x\r\nAuthorization: me\r\n\r\n").body == "404:there is nothing at /no");
  // Refused before its body is read: the connection ends.
  Client big(port);
  CHECK(big.ask("POST /io HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n").status == 401);
  CHECK(big.closes());
}

TEST_CASE("streams from another thread") {
  TestServer s;
  Client c(s.start());
  c.send(get("/keep") + get("/io"));
  const HttpReply reply = s.kept();
  std::thread writer([&] {
    reply.begin(200, "text/event-stream", {{"x-request-id", "r1"}});
    for (int i = 0; i < 1000; ++i) reply.write("data: " + std::to_string(i) + "\n\n");
    reply.write("");
    reply.finish();
  });
  const Response r = c.read();
  writer.join();
  CHECK(r.complete);
  CHECK(r.header("x-request-id") == "r1");
  CHECK(r.header("content-type") == "text/event-stream");
  std::string expected;
  for (int i = 0; i < 1000; ++i) expected += "data: " + std::to_string(i) + "\n\n";
  CHECK(r.body == expected);
  CHECK(c.read().body == "GET /io? ");
}

TEST_CASE("each chunk is sent when it is written") {
  TestServer s;
  Client c(s.start());
  c.send(get("/keep"));
  const HttpReply reply = s.kept();
  reply.begin(200, "text/event-stream");
  for (const char* chunk : {"first", "second", "third"}) {
    reply.write(chunk);
    CHECK(c.receives(chunk));
  }
  CHECK_FALSE(reply.gone());
  reply.finish();
  CHECK(c.receives("0\r\n\r\n"));
}

TEST_CASE("256 streams at once") {
  TestServer s({.io_threads = 2});
  const int port = s.start();
  constexpr int kStreams = 256, kChunks = 50;
  std::vector<Client> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back(port);
    clients.back().send(get("/keep"));
  }
  std::vector<HttpReply> replies;
  for (int i = 0; i < kStreams; ++i) replies.push_back(s.kept(static_cast<size_t>(i)));
  std::vector<std::thread> writers;
  for (size_t w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      for (size_t i = w; i < kStreams; i += 4) replies[i].begin(200, "text/event-stream");
      for (int k = 0; k < kChunks; ++k)
        for (size_t i = w; i < kStreams; i += 4) replies[i].write("chunk " + std::to_string(k) + ";");
      for (size_t i = w; i < kStreams; i += 4) replies[i].finish();
    });
  std::string expected;
  for (int k = 0; k < kChunks; ++k) expected += "chunk " + std::to_string(k) + ";";
  int right = 0;
  for (Client& c : clients) right += c.read().body == expected;
  for (std::thread& w : writers) w.join();
  CHECK(right == kStreams);
}

TEST_CASE("an address that is taken or unknown") {
  TestServer s;
  const int port = s.start();
  HttpServer again(HttpServerSpec{.port = port});
  CHECK_THROWS_WITH_AS(again.start(), doctest::Contains("cannot listen on 127.0.0.1:"), Error);
  HttpServer nowhere(HttpServerSpec{.host = "no.such.host.invalid"});
  CHECK_THROWS_WITH_AS(nowhere.start(), doctest::Contains("no.such.host.invalid"), Error);
  HttpServer foreign(HttpServerSpec{.host = "192.0.2.1"});
  CHECK_THROWS_AS(foreign.start(), Error);
  TestServer named({.host = "localhost"});
  CHECK(Client(named.start()).ask(get("/io")).status == 200);
}

TEST_CASE("stop while a stream is under way") {
  std::optional<HttpReply> reply;
  std::atomic<int> told = 0;
  {
    TestServer s;
    const int port = s.start();
    Client idle(port), c(port);
    CHECK(idle.ask(get("/io")).status == 200);
    c.send(get("/keep"));
    reply = s.kept();
    reply->on_gone([&] { ++told; });
    reply->begin(200, "text/event-stream");
    reply->write("begun");
    CHECK(c.receives("begun"));
    const double before = seconds_now();
    s.server.stop(0.05);
    CHECK(seconds_now() - before < kWaitSeconds);
    CHECK(told == 1);
    CHECK(reply->gone());
    CHECK(idle.closes());
    CHECK(c.closes());
    s.server.stop(0);
    s.drop_kept();
  }
  reply->write("after the end");  // a reply may outlive its server
  reply->finish();
}

TEST_CASE("stop lets a reply under way finish") {
  TestServer s;
  const int port = s.start();
  Client c(port);
  c.send(get("/keep"));
  const HttpReply reply = s.kept();
  reply.begin(200, "text/event-stream");
  s.server.stop_listening();
  CHECK_THROWS(Client(port));
  std::thread stopper([&] { s.server.stop(kWaitSeconds); });
  reply.write("the rest");
  reply.finish();
  stopper.join();
  const Response r = c.read();
  CHECK(r.complete);
  CHECK(r.body == "the rest");
}
