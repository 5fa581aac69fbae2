// Hostile clients: slow, greedy, many.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "tests/net/http_client.h"
#include "tests/net/test_server.h"

using namespace rw;
using namespace rw::testing;

TEST_CASE("too much header, too much body") {
  TestServer s({.max_header_bytes = 2000, .max_body_bytes = 5000});
  const int port = s.start();
  Client header(port);
  CHECK(header.ask("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(3000, 'x')).status == 431);
  CHECK(header.closes());
  Client body(port);
  CHECK(body.ask("POST /io HTTP/1.1\r\nHost: x\r\nContent-Length: 5001\r\nExpect: 100-continue\r\n\r\n").status == 413);
  CHECK(body.closes());
  // A client that goes on sending still reads why it was refused.
  Client deaf(port);
  const Response r = deaf.ask(post("/io", std::string(20 << 20, 'x')));
  CHECK(r.status == 413);
  CHECK(r.complete);
  Client chunked(port);
  chunked.send("POST /io HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 60; ++i) chunked.send("64\r\n" + std::string(100, 'c') + "\r\n");
  CHECK(chunked.read().status == 413);
  CHECK(Client(port).ask(post("/io", std::string(5000, 'x'))).status == 200);
  CHECK(s.server.counts().bad_requests == 4);
}

TEST_CASE("all bodies together have a limit") {
  TestServer s({.max_body_bytes = 100000, .max_bodies_bytes = 150000});
  const int port = s.start();
  Client first(port), second(port);
  const std::string most = post("/io", std::string(90000, 'x')).substr(0, 80000);
  first.send(most);
  REQUIRE(eventually([&] { return s.server.counts().requests == 1; }));
  second.send(most);
  REQUIRE(eventually([&] { return s.server.counts().refused == 1; }));
  const Response r = (second.more(0.2) ? second : first).read();
  CHECK(r.status == 503);
  CHECK(r.header("retry-after") == "1");
  first.close();
  second.close();
  CHECK(eventually([&] { return Client(port).ask(post("/io", std::string(90000, 'x'))).status == 200; }));
}

TEST_CASE("slow senders") {
  TestServer s({.header_timeout_s = 0.15, .body_timeout_s = 0.15, .idle_timeout_s = 0.3});
  const int port = s.start();
  std::atomic<bool> enough = false;
  Client drip(port), body(port), idle(port), dead(port);
  CHECK(idle.ask(get("/io")).status == 200);
  std::thread dripping([&] {
    drip.send("GET / HTTP/1.1\r\nHost: x\r\n");
    while (!enough) {
      drip.send("X: y\r\n");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const bool refused = drip.receives("HTTP/1.1 408 ");
  enough = true;
  dripping.join();
  CHECK(refused);
  const Response late = body.ask("POST /io HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  CHECK(late.status == 408);
  CHECK(late.header("connection") == "close");
  CHECK(idle.closes());
  CHECK(dead.closes());
  CHECK(dead.received().empty());
  CHECK(s.server.counts().timeouts == 2);
  CHECK(Client(port).ask(get("/io")).status == 200);
}

TEST_CASE("a long reply is not a slow one") {
  TestServer s({.header_timeout_s = 0.05, .body_timeout_s = 0.05, .idle_timeout_s = 0.05, .write_timeout_s = 0.05});
  Client c(s.start());
  c.send(get("/keep"));
  const HttpReply reply = s.kept();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  reply.begin(200, "text/plain");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  reply.write("late");
  reply.finish();
  CHECK(c.read().body == "late");
}

TEST_CASE("all workers busy and their queue full") {
  HttpServer server(HttpServerSpec{.workers = 1, .max_queue = 1});
  std::mutex mutex;
  std::condition_variable free;
  bool open = false;
  std::atomic<int> running = 0;
  server.route("GET", "/wait", HttpWhere::worker, [&](const HttpRequest&, const HttpReply& r) {
    ++running;
    std::unique_lock lock(mutex);
    free.wait_for(lock, std::chrono::seconds(20), [&] { return open; });
    r.send(200, "done");
  });
  server.route("GET", "/io", HttpWhere::io, [](const HttpRequest&, const HttpReply& r) { r.send(200, "io"); });
  const int port = server.start();
  Client runs(port), waits(port), gives_up(port), refused(port);
  runs.send(get("/wait"));
  REQUIRE(eventually([&] { return running == 1; }));
  waits.send(get("/wait"));
  REQUIRE(eventually([&] { return server.counts().worker_queue_s > 0; }));
  const Response r = refused.ask(get("/wait"));
  CHECK(r.status == 503);
  CHECK(r.header("retry-after") == "1");
  CHECK(refused.ask(get("/io")).body == "io");
  {
    const std::lock_guard lock(mutex);
    open = true;
  }
  free.notify_all();
  CHECK(runs.read().body == "done");
  CHECK(waits.read().body == "done");
  CHECK(refused.ask(get("/wait")).body == "done");
  CHECK(server.counts().worker_queue_s == 0);
}

TEST_CASE("a queued request whose client has gone is not run") {
  HttpServer server(HttpServerSpec{.workers = 1});
  std::mutex mutex;
  std::condition_variable free;
  bool open = false;
  std::atomic<int> running = 0;
  server.route("GET", "/wait", HttpWhere::worker, [&](const HttpRequest&, const HttpReply& r) {
    ++running;
    std::unique_lock lock(mutex);
    free.wait_for(lock, std::chrono::seconds(20), [&] { return open; });
    r.send(200, "done");
  });
  const int port = server.start();
  Client runs(port), leaves(port), stays(port);
  runs.send(get("/wait"));
  REQUIRE(eventually([&] { return running == 1; }));
  leaves.send(get("/wait"));
  REQUIRE(eventually([&] { return server.counts().requests == 2; }));
  leaves.close();
  REQUIRE(eventually([&] { return server.counts().connections == 2; }));
  stays.send(get("/wait"));
  {
    const std::lock_guard lock(mutex);
    open = true;
  }
  free.notify_all();
  CHECK(stays.read().body == "done");
  CHECK(running == 2);
}

TEST_CASE("the oldest idle connection makes room for a new one") {
  TestServer s({.max_connections = 3});
  const int port = s.start();
  Client a(port), b(port), d(port);
  for (Client* c : {&a, &b, &d}) CHECK(c->ask(get("/io")).status == 200);
  CHECK(a.ask(get("/io")).status == 200);  // now b is the longest idle
  Client e(port);
  CHECK(e.ask(get("/io")).status == 200);
  CHECK(b.closes());
  CHECK(a.ask(get("/io")).status == 200);
  CHECK(s.server.counts().connections == 3);
  CHECK(s.server.counts().refused == 0);
}

TEST_CASE("no room for a new connection") {
  TestServer s({.max_connections = 2});
  const int port = s.start();
  Client a(port), b(port);
  a.send(get("/keep"));
  b.send(get("/keep"));
  const HttpReply first = s.kept(0), second = s.kept(1);
  std::vector<Client> refused;  // which stay connected
  for (int64_t n = 1; n <= 5; ++n) {
    const Response r = refused.emplace_back(port).ask(get("/io"));
    CHECK(r.status == 503);
    CHECK(r.header("connection") == "close");
    CHECK(r.header("retry-after") == "1");
    CHECK(s.server.counts().refused == n);
    CHECK(s.server.counts().connections <= 3);
  }
  CHECK(refused.front().closes());
  first.send(200, "1");
  second.send(200, "2");
  CHECK(a.read().body + b.read().body == "12");
  CHECK(Client(port).ask(get("/io")).status == 200);
}

TEST_CASE("no file descriptor is left for a new connection") {
  TestServer s;
  const int port = s.start();
  Client before(port);
  CHECK(before.ask(get("/io")).status == 200);
  std::vector<Client> many;
  for (int i = 0; i < 20; ++i) many.emplace_back(0);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit usual = limit;
  const int free_fd = ::fcntl(0, F_DUPFD, 3);
  ::close(free_fd);
  limit.rlim_cur = static_cast<rlim_t>(free_fd + 5);
  setrlimit(RLIMIT_NOFILE, &limit);
  for (Client& c : many) c.connect(port);
  const bool some_taken = eventually([&] { return s.server.counts().accepted >= 6; });
  const int64_t taken = s.server.counts().accepted;
  setrlimit(RLIMIT_NOFILE, &usual);
  CHECK(some_taken);
  CHECK(taken <= 30);
  for (int i = 0; i < 10; ++i) many.pop_back();
  CHECK(Client(port).ask(get("/io")).status == 200);
}
