// Each connection belongs to one i/o thread with an io_context of its own, so that its code needs no locks; other
// threads reach it through the thread's list of connections to be looked at. Readiness is waited for and the bytes are
// moved by non-blocking calls: an idle connection holds no buffer, and a chunk costs one send.
#include "libcore/net/http_io.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/net/http_session.h"

namespace rw {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr double kAcceptPauseSeconds = 0.05;  // when no file descriptor is left
constexpr double kDrainLookSeconds = 0.005;
constexpr int kReadsInTurn = 4, kWritesInTurn = 64;
constexpr size_t kReadBytes = 64 << 10;

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

// Time-outs are looked at by one timer a thread, late by at most an eighth of the shortest.
double tick_seconds(const HttpServerSpec& spec) {
  const double shortest =
      std::min({spec.header_timeout_s, spec.body_timeout_s, spec.idle_timeout_s, spec.write_timeout_s});
  return std::clamp(shortest / 8, 0.01, 0.25);
}

std::string peer_name(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return "unknown";
  const std::string address = peer.address().to_string();
  return (peer.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(peer.port());
}

// A peer that vanishes without a word (a pulled cable) is noticed within a minute or so, even if it only waits.
void watch_for_death(int fd) {
  struct Option {
    int level, name, value;
  };
  constexpr int kTcp = IPPROTO_TCP;
  for (const auto& [level, option, value] : {Option{SOL_SOCKET, SO_KEEPALIVE, 1}, Option{kTcp, TCP_KEEPIDLE, 30},
                                             Option{kTcp, TCP_KEEPINTVL, 10}, Option{kTcp, TCP_KEEPCNT, 4}})
    (void)::setsockopt(fd, level, option, &value, sizeof value);
}

struct Thread;

struct Connection {
  Connection(Thread& owner, tcp::socket peer) : thread(owner), socket(std::move(peer)) {}
  Thread& thread;  // ends after its connections
  tcp::socket socket;
  std::optional<HttpSession> session;
  bool reading = false, writing = false, told_end = false, closed = false;
  std::list<std::shared_ptr<Connection>>::iterator place;
  std::optional<std::list<Connection*>::iterator> idle_place;
};
using ConnectionPtr = std::shared_ptr<Connection>;

// What other threads may touch of an i/o thread, and may outlive it.
struct Door {
  std::mutex mutex;
  std::vector<std::weak_ptr<Connection>> waiting;  // for a look
  asio::io_context* context = nullptr;             // null: the thread has ended
};

struct Thread {
  explicit Thread(std::shared_ptr<HttpApp> the_app) : app(std::move(the_app)), timer(context) {}

  const std::shared_ptr<HttpApp> app;
  asio::io_context context{1};
  asio::steady_timer timer;
  std::list<ConnectionPtr> connections;
  std::list<Connection*> idle;  // the longest idle first
  std::array<char, kReadBytes> buffer;
  const std::shared_ptr<Door> door = std::make_shared<Door>();
  std::vector<std::weak_ptr<Connection>> looked_at;
  bool stopping = false;
  std::thread thread;

  void start() {
    door->context = &context;
    arm_timer();
    thread = std::thread([this] { context.run(); });
  }

  void arm_timer() {
    timer.expires_after(duration(tick_seconds(app->spec)));
    timer.async_wait([this](const error_code& error) {
      if (error || stopping) return;
      const double now = now_s();
      for_all([&](const ConnectionPtr& c) {
        guarded(c, [&] {
          c->session->tick(now);
          service(c, now);
        });
      });
      arm_timer();
    });
  }

  template <typename Function>
  void for_all(const Function& function) {
    for (auto at = connections.begin(); at != connections.end();) {
      const ConnectionPtr connection = *at++;  // which may leave the list
      function(connection);
    }
  }

  // What fails on one connection (no memory for its body) ends that connection, not the server.
  template <typename Function>
  void guarded(const ConnectionPtr& c, const Function& function) {
    try {
      function();
    } catch (const std::exception& error) {
      log_error("a connection is ended: {}", error.what());
      if (!c->closed) close(*c);
    }
  }

  // From any thread: look at `connection` soon. One message for all that come before the thread gets to it.
  static void wake(const std::shared_ptr<Door>& door, std::weak_ptr<Connection> connection, Thread* self) {
    const std::lock_guard lock(door->mutex);
    if (door->context == nullptr) return;
    door->waiting.push_back(std::move(connection));
    if (door->waiting.size() == 1) asio::post(*door->context, [self] { self->look(); });
  }

  void look() {
    {
      const std::lock_guard lock(door->mutex);
      looked_at.swap(door->waiting);
    }
    const double now = now_s();
    for (const std::weak_ptr<Connection>& weak : looked_at)
      if (const ConnectionPtr c = weak.lock(); c != nullptr && !c->closed) {
        guarded(c, [&] {
          c->session->advance(now);
          service(c, now);
        });
      }
    looked_at.clear();
  }

  bool close_oldest_idle() {
    if (idle.empty()) return false;
    close(**idle.front()->place);
    return true;
  }

  void adopt(tcp::socket socket) {
    if (stopping) return;
    error_code error;
    socket.non_blocking(true, error);
    socket.set_option(tcp::no_delay(true), error);
    watch_for_death(socket.native_handle());
    std::string peer = peer_name(socket);
    const auto full = [this] { return app->tally.connections >= app->spec.max_connections; };
    while (full() && close_oldest_idle()) {
    }
    const bool refused = full();
    const ConnectionPtr c = std::make_shared<Connection>(*this, std::move(socket));
    ++app->tally.connections;
    ++app->tally.accepted;
    const double now = now_s();
    c->place = connections.insert(connections.end(), c);
    c->session.emplace(
        app, std::move(peer), [at = door, weak = std::weak_ptr(c), self = this] { wake(at, weak, self); }, now);
    if (refused) c->session->refuse(now);
    guarded(c, [&] { service(c, now); });
  }

  // Does what the session wants done.
  void service(const ConnectionPtr& c, double now) {
    if (c->closed) return;
    HttpSession& session = *c->session;
    for (int turn = 0; !c->writing && !session.output().empty(); ++turn) {
      if (turn == kWritesInTurn) {  // the others want their turn
        wake(door, c, this);
        break;
      }
      error_code error;
      const std::string_view out = session.output();
      const size_t n = c->socket.write_some(asio::buffer(out.data(), out.size()), error);
      if (error == asio::error::would_block) wait_write(c);
      else if (error) session.gone();
      else session.sent(n, now);
    }
    if (session.lingering() && !c->told_end) {
      c->told_end = true;
      error_code error;
      c->socket.shutdown(tcp::socket::shutdown_send, error);
    }
    if (session.over()) return close(*c);
    if (session.reading() && !c->reading) wait_read(c);
    const bool idles = session.idle() || session.lingering();
    if (idles && !c->idle_place) c->idle_place = idle.insert(idle.end(), c.get());
    else if (!idles) leave_idle(*c);
  }

  void leave_idle(Connection& c) {
    if (c.idle_place) idle.erase(*c.idle_place);
    c.idle_place.reset();
  }

  void wait_write(const ConnectionPtr& c) {
    c->writing = true;
    c->socket.async_wait(tcp::socket::wait_write, [this, c](const error_code&) {
      c->writing = false;
      guarded(c, [&] { service(c, now_s()); });
    });
  }

  // Also while a reply is under way: this is how a peer that hangs up is noticed.
  void wait_read(const ConnectionPtr& c) {
    c->reading = true;
    c->socket.async_wait(tcp::socket::wait_read, [this, c](const error_code&) {
      c->reading = false;
      if (!c->closed) guarded(c, [&] { read(c); });
    });
  }

  void read(const ConnectionPtr& c) {
    HttpSession& session = *c->session;
    const double now = now_s();
    leave_idle(*c);  // to come back behind the others
    for (int turn = 0; turn < kReadsInTurn && session.reading(); ++turn) {
      error_code error;
      const size_t n = c->socket.read_some(asio::buffer(buffer), error);
      if (error == asio::error::would_block) break;
      if (error == asio::error::eof) session.peer_ended();
      else if (error) session.gone();
      else session.receive({buffer.data(), n}, now);
      if (n < buffer.size()) break;
    }
    service(c, now);
  }

  void close(Connection& c) {
    const ConnectionPtr keep = *c.place;
    c.closed = true;
    leave_idle(c);
    error_code error;
    // What a cut-off peer has not taken is not worth the kernel's memory.
    if (c.session->broken()) c.socket.set_option(asio::socket_base::linger(true, 0), error);
    c.session->gone();
    c.socket.close(error);
    connections.erase(c.place);
    --app->tally.connections;
  }

  // On this thread.
  void end() {
    stopping = true;
    for_all([&](const ConnectionPtr& c) {
      if (c->session->lingering() || c->session->idle()) return close(*c);
      ++app->tally.cut_off;
      c->session->gone();
      close(*c);
    });
    {
      const std::lock_guard lock(door->mutex);
      door->context = nullptr;
      door->waiting.clear();
    }
    context.stop();
  }
};

}  // namespace

struct HttpIo::Impl {
  std::shared_ptr<HttpApp> app;
  std::vector<std::unique_ptr<Thread>> threads;
  struct Acceptor {
    explicit Acceptor(asio::io_context& context) : socket(context), pause(context) {}
    tcp::acceptor socket;
    asio::steady_timer pause;
  };
  std::list<Acceptor> acceptors;  // used on the first thread, once started
  size_t next = 0;
  bool running = false;

  void accept(Acceptor& acceptor) {
    Thread& owner = *threads[next++ % threads.size()];
    acceptor.socket.async_accept(owner.context, [this, &acceptor, &owner](const error_code& error, tcp::socket socket) {
      if (!acceptor.socket.is_open()) return;
      if (error && error != asio::error::connection_aborted) {
        // No file descriptor or memory is left: the new connection stays in the kernel's queue until there is room.
        asio::dispatch(owner.context, [&owner] { owner.close_oldest_idle(); });
        acceptor.pause.expires_after(duration(kAcceptPauseSeconds));
        acceptor.pause.async_wait([this, &acceptor](const error_code& stopped) {
          if (!stopped && acceptor.socket.is_open()) accept(acceptor);
        });
        return;
      }
      if (!error)
        asio::dispatch(owner.context, [&owner, peer = std::make_shared<tcp::socket>(std::move(socket))] {
          owner.adopt(std::move(*peer));
        });
      accept(acceptor);
    });
  }

  void close_acceptors() {
    for (Acceptor& acceptor : acceptors) {
      error_code error;
      acceptor.socket.close(error);
      acceptor.pause.cancel();
    }
  }

  // Runs `function` on a thread and waits for it.
  template <typename Function>
  static void on(Thread& thread, const Function& function) {
    std::promise<void> done;
    asio::post(thread.context, [&] {
      function();
      done.set_value();
    });
    done.get_future().wait();
  }
};

HttpIo::HttpIo(std::shared_ptr<HttpApp> app) : impl_(new Impl{.app = std::move(app)}) {}
HttpIo::~HttpIo() { stop(); }

int HttpIo::listen() {
  Impl& io = *impl_;
  const HttpServerSpec& spec = io.app->spec;
  for (int i = 0; i < std::max(1, spec.io_threads); ++i) io.threads.push_back(std::make_unique<Thread>(io.app));
  asio::io_context& context = io.threads[0]->context;
  error_code error;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(spec.host, std::to_string(spec.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error)
    fail(ErrorKind::runtime, "--host {}: expected an address or a name of this machine: {}", spec.host,
         error.message());
  int port = spec.port;
  // A name may stand for an IPv4 and an IPv6 address: both are served.
  for (const auto& entry : found) {
    tcp::endpoint endpoint = entry.endpoint();
    endpoint.port(static_cast<uint16_t>(port));
    Impl::Acceptor& acceptor = io.acceptors.emplace_back(context);
    acceptor.socket.open(endpoint.protocol(), error);
    if (!error) acceptor.socket.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.socket.bind(endpoint, error);
    if (!error) acceptor.socket.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      io.acceptors.pop_back();
      const bool no_such_family =
          error == asio::error::address_family_not_supported || error == boost::system::errc::address_not_available;
      if (no_such_family && (!io.acceptors.empty() || found.size() > 1)) continue;
      fail(ErrorKind::runtime, "cannot listen on {}:{}: {}; choose another --host or --port", spec.host, port,
           error.message());
    }
    port = acceptor.socket.local_endpoint().port();
  }
  if (io.acceptors.empty()) fail(ErrorKind::runtime, "cannot listen on {}:{}: {}", spec.host, port, error.message());
  for (Impl::Acceptor& acceptor : io.acceptors) io.accept(acceptor);
  io.running = true;
  for (const auto& thread : io.threads) thread->start();
  return port;
}

void HttpIo::stop_listening() {
  Impl& io = *impl_;
  if (io.running) Impl::on(*io.threads[0], [&io] { io.close_acceptors(); });
}

void HttpIo::drain(double patience_s) {
  Impl& io = *impl_;
  if (!io.running) return;
  for (const auto& thread : io.threads)
    Impl::on(*thread, [&] {
      const double now = now_s();
      thread->for_all([&](const ConnectionPtr& c) {
        c->session->drain(now);
        thread->service(c, now);
      });
    });
  for (const double until = now_s() + patience_s; io.app->tally.open_requests > 0 && now_s() < until;)
    std::this_thread::sleep_for(duration(kDrainLookSeconds));
}

void HttpIo::stop() {
  Impl& io = *impl_;
  if (!std::exchange(io.running, false)) return;
  Impl::on(*io.threads[0], [&io] { io.close_acceptors(); });
  for (const auto& thread : io.threads) Impl::on(*thread, [&] { thread->end(); });
  for (const auto& thread : io.threads) thread->thread.join();
}

}  // namespace rw
