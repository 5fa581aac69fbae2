// Peers that go away or do not read.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>

#include "tests/net/http_client.h"
#include "tests/net/test_server.h"

using namespace rw;
using namespace rw::testing;

namespace {

// How a peer goes: FIN, or RST.
void leave(Client& c, bool reset) {
  if (reset) c.reset();
  else c.close();
}

}  // namespace

TEST_CASE("a peer that goes is noticed while nothing is written") {
  for (const bool reset : {false, true})
    for (const bool begun : {false, true}) {
      CAPTURE(reset);
      CAPTURE(begun);
      TestServer s;
      const int port = s.start();
      Client c(port);
      c.send(get("/keep"));
      const HttpReply reply = s.kept();
      std::atomic<int> told = 0;
      reply.on_gone([&] { ++told; });
      if (begun) {
        reply.begin(200, "text/event-stream");
        reply.write("x");
        CHECK(c.receives("x"));
      }
      CHECK_FALSE(reply.gone());
      leave(c, reset);
      CHECK(eventually([&] { return told == 1; }));
      CHECK(reply.gone());
      if (!begun) reply.begin(200, "text/event-stream");
      reply.write("dropped");
      reply.finish();
      std::atomic<int> told_late = 0;
      reply.on_gone([&] { ++told_late; });
      CHECK(told_late == 1);
      CHECK(told == 1);
      CHECK(eventually([&] { return s.server.counts().connections == 0; }));
      CHECK(Client(port).ask(get("/io")).status == 200);
    }
}

TEST_CASE("a peer that goes with a pipelined request in its wake") {
  TestServer s;
  Client c(s.start());
  c.send(get("/keep") + get("/io") + "GET /half");
  const HttpReply reply = s.kept();
  c.close();
  CHECK(eventually([&] { return reply.gone(); }));
}

TEST_CASE("a peer that has closed its sending side still gets the replies that are ready") {
  TestServer s;
  const int port = s.start();
  Client c(port);
  c.send(get("/io") + get("/io"));
  CHECK(c.read().status == 200);
  CHECK(c.read().status == 200);
  c.finish_sending();
  CHECK(c.closes());
  Client half(port);
  half.send("GET /io HT");
  half.finish_sending();
  CHECK(half.closes());
}

TEST_CASE("a finished reply tells nobody that the peer went") {
  TestServer s;
  Client c(s.start());
  c.send(get("/keep"));
  const HttpReply reply = s.kept();
  std::atomic<int> told = 0;
  reply.on_gone([&] { ++told; });
  reply.send(200, "all");
  CHECK(c.read().body == "all");
  c.close();
  CHECK(eventually([&] { return s.server.counts().connections == 0; }));
  CHECK(told == 0);
}

TEST_CASE("a peer that does not read is cut off, its neighbour is not") {
  TestServer s({.max_backlog_bytes = 100000});
  const int port = s.start();
  Client c(0), neighbour(port);
  c.small_receive_buffer();
  c.connect(port);
  c.send(get("/keep"));
  const HttpReply slow = s.kept(0);
  neighbour.send(get("/keep"));
  const HttpReply good = s.kept(1);
  std::atomic<int> told = 0;
  slow.on_gone([&] { ++told; });
  slow.begin(200, "text/event-stream");
  good.begin(200, "text/event-stream");
  const std::string chunk(9973, 'c');
  // The kernel takes some megabytes before the backlog grows.
  int chunks = 0;
  for (; chunks < 20000 && !slow.gone(); ++chunks) slow.write(chunk);
  CHECK(slow.gone());
  CHECK(eventually([&] { return told == 1; }));
  CHECK(s.server.counts().cut_off == 1);
  good.write("fine");
  good.finish();
  CHECK(neighbour.read().body == "fine");
}

TEST_CASE("a peer that takes nothing for too long is cut off") {
  TestServer s({.max_backlog_bytes = 100 << 20, .write_timeout_s = 0.2});
  const int port = s.start();
  Client c(0);
  c.small_receive_buffer();
  c.connect(port);
  c.send(get("/keep"));
  const HttpReply reply = s.kept();
  reply.begin(200, "text/event-stream");
  reply.write(std::string(50 << 20, 'c'));
  CHECK(eventually([&] { return reply.gone(); }));
  CHECK(s.server.counts().timeouts == 1);
  CHECK(s.server.counts().cut_off == 1);
}

TEST_CASE("on_gone may hold the reply itself") {
  TestServer s;
  const int port = s.start();
  Client c(port);
  auto witness = std::make_shared<std::atomic<int>>(0);
  for (const bool finished : {true, false}) {
    c.send(get("/keep"));
    {
      const HttpReply reply = s.kept();
      reply.on_gone([reply, witness] { ++*witness; });
      s.drop_kept();
      reply.begin(200, "text/plain");
      if (finished) reply.finish();
    }
    if (finished) CHECK(c.read().complete);
    else c.close();
    CHECK(eventually([&] { return witness.use_count() == 1; }));
  }
  CHECK(*witness == 1);
}

TEST_CASE("a stream whose owner is lost is torn") {
  TestServer s;
  const int port = s.start();
  Client c(port);
  c.send(get("/keep"));
  {
    const HttpReply reply = s.kept();
    reply.begin(200, "text/event-stream");
    reply.write("begun");
    CHECK(c.receives("begun"));
    s.drop_kept();
  }
  CHECK_FALSE(c.read().complete);
}
