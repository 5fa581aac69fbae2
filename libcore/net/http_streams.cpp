// One epoll set. A timer descriptor in it wakes to the microsecond, where epoll_wait's own time-out knows milliseconds.
#include "libcore/net/http_streams.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <deque>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/net/tcp_dial.h"

namespace rw {
namespace {

using Kind = HttpStreamReport::Kind;
constexpr double kAheadPauseSeconds = 0.1;  // after a connection that failed
constexpr size_t kReadBytes = 64 << 10;
constexpr int kReadsInTurn = 4, kEvents = 64;  // then the caller gets to what is due
constexpr uint64_t kTimer = ~uint64_t{0};

std::string reason(int error) { return std::generic_category().message(error); }

enum class State : uint8_t { free, connecting, idle, busy };

struct Connection {
  TcpSocket socket;
  State state = State::free;
  uint32_t generation = 0;  // of this place; an event of an earlier one is stale
  HttpResponseParser parser;
  int64_t stream = -1;
  std::string out;  // the request, until a byte of its reply has come
  size_t out_at = 0;
  bool waits_write = false;
  bool may_resend = false;  // it was idle: the server may have closed it before the request came
};

struct Waiting {
  int64_t stream;
  std::string request;
  bool may_resend;
};

}  // namespace

struct HttpStreams::Impl {
  const HttpStreamsSpec spec;
  TcpAddress address;
  TcpSocket poll, timer;  // descriptors, though no sockets
  double armed_s = -1;
  double ahead_again_s = 0;            // none is opened ahead before
  std::deque<Connection> connections;  // by place; never moved
  std::vector<size_t> free, idle;
  struct Dialing {
    size_t place;
    uint32_t generation;
    double until_s;
  };
  std::deque<Dialing> dialing;  // by time
  int64_t connecting = 0, opened = 0;
  std::deque<Waiting> waiting;
  std::unordered_map<int64_t, size_t> place_of;  // of streams that have a connection
  struct Early {
    Kind kind;
    int64_t stream;
    double at_s;
    std::string why;
  };
  std::deque<Early> early;  // reports to be told by the next wait
  std::array<char, kReadBytes> buffer;
  std::array<epoll_event, kEvents> events;

  explicit Impl(const HttpStreamsSpec& the_spec)
      : spec(the_spec),
        poll(::epoll_create1(EPOLL_CLOEXEC)),
        timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (poll.fd() < 0 || timer.fd() < 0) fail(ErrorKind::runtime, "cannot make an epoll set: {}", reason(errno));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kTimer;
    ::epoll_ctl(poll.fd(), EPOLL_CTL_ADD, timer.fd(), &event);
    TcpDialed first = dial_tcp(spec.url, spec.connect_timeout_s);
    address = std::move(first.address);
    const size_t place = adopt(std::move(first.socket), EPOLLIN);
    connections[place].state = State::idle;
    connections[place].may_resend = true;
    idle.push_back(place);
  }

  void watch(size_t place, int operation, uint32_t what) const {
    const Connection& c = connections[place];
    epoll_event event{};
    event.events = what;
    event.data.u64 = uint64_t{c.generation} << 32 | place;
    ::epoll_ctl(poll.fd(), operation, c.socket.fd(), &event);
  }

  size_t adopt(TcpSocket socket, uint32_t what) {
    if (free.empty()) {
      free.push_back(connections.size());
      connections.emplace_back();
    }
    const size_t place = free.back();
    free.pop_back();
    connections[place].socket = std::move(socket);
    watch(place, EPOLL_CTL_ADD, what);
    ++opened;
    return place;
  }

  void close(size_t place) {
    Connection& c = connections[place];
    if (c.state == State::connecting) --connecting;
    if (c.state == State::idle) idle.erase(std::find(idle.begin(), idle.end(), place));
    if (c.stream >= 0) place_of.erase(c.stream);
    c.socket = TcpSocket();
    c.state = State::free;
    ++c.generation;
    c.stream = -1;
    c.out = {};
    c.out_at = 0;
    c.waits_write = c.may_resend = false;
    free.push_back(place);
  }

  // False when it failed at once; a request that waited for it has been told.
  bool open() {
    std::string why;
    TcpSocket socket = begin_tcp(address, why);
    if (socket.fd() < 0) {
      no_connection(why);
      return false;
    }
    const size_t place = adopt(std::move(socket), EPOLLOUT);
    connections[place].state = State::connecting;
    ++connecting;
    dialing.push_back({place, connections[place].generation, now_s() + spec.connect_timeout_s});
    return true;
  }

  // A connection could not be made: the request that it was made for fails.
  void no_connection(const std::string& why) {
    ahead_again_s = now_s() + kAheadPauseSeconds;
    if (static_cast<int64_t>(waiting.size()) <= connecting) return;
    early.push_back({Kind::no_connection, waiting.front().stream, now_s(),
                     fmt::format("cannot connect to {}: {}", spec.url.authority(), why)});
    waiting.pop_front();
  }

  void pump() {
    while (!waiting.empty() && !idle.empty()) {
      const size_t place = idle.back();
      idle.pop_back();
      start(place, std::move(waiting.front()));
      waiting.pop_front();
    }
    while (static_cast<int64_t>(waiting.size()) > connecting) open();
  }

  void start(size_t place, Waiting request) {
    Connection& c = connections[place];
    c.state = State::busy;
    c.stream = request.stream;
    c.out = std::move(request.request);
    c.out_at = 0;
    c.may_resend = c.may_resend && request.may_resend;
    c.parser.reset();
    place_of[c.stream] = place;
    write(place);
  }

  void write(size_t place) {
    Connection& c = connections[place];
    while (c.out_at < c.out.size()) {
      const double at_s = now_s();  // before the server can have anything
      const ssize_t n = ::send(c.socket.fd(), c.out.data() + c.out_at, c.out.size() - c.out_at, MSG_NOSIGNAL);
      if (n > 0) {
        if (c.out_at == 0) early.push_back({Kind::sent, c.stream, at_s, ""});
        c.out_at += static_cast<size_t>(n);
      } else if (n < 0 && errno == EINTR) {
        continue;
      } else if (n < 0 && errno == EAGAIN) {
        if (!c.waits_write) watch(place, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
        c.waits_write = true;
        return;
      } else {
        break;  // the peer has gone; what it said before, if anything, is read next
      }
    }
    if (c.waits_write) watch(place, EPOLL_CTL_MOD, EPOLLIN);
    c.waits_write = false;
  }

  void connected(size_t place) {
    Connection& c = connections[place];
    const std::string why = tcp_failure(c.socket);
    if (!why.empty()) {
      close(place);
      no_connection(why);
      return;
    }
    --connecting;
    c.state = State::idle;
    watch(place, EPOLL_CTL_MOD, EPOLLIN);
    if (waiting.empty()) {
      c.may_resend = true;
      idle.push_back(place);
      return;
    }
    Waiting next = std::move(waiting.front());
    waiting.pop_front();
    start(place, std::move(next));
  }

  // The connection has ended, with what the parser makes of that.
  template <typename Tell>
  void lost(size_t place, const std::string& why, const Tell& tell) {
    Connection& c = connections[place];
    if (!c.parser.started() && c.may_resend) {
      Waiting again{c.stream, std::move(c.out), false};
      close(place);
      waiting.push_front(std::move(again));
      return;
    }
    const HttpResponseParser::Step step = c.parser.finish();
    const int64_t stream = c.stream;
    const std::string message = c.parser.message();
    const Kind kind = c.parser.is_http() ? Kind::closed : Kind::bad_reply;
    close(place);
    if (step.event == HttpResponseParser::Event::done) tell({Kind::done, stream, now_s()});
    else tell({kind, stream, now_s(), why.empty() ? message : fmt::format("{} ({})", message, why)});
  }

  template <typename Tell>
  void read(size_t place, const Tell& tell) {
    Connection& c = connections[place];
    const uint32_t generation = c.generation;
    for (int turn = 0; turn < kReadsInTurn; ++turn) {
      const ssize_t n = ::recv(c.socket.fd(), buffer.data(), buffer.size(), 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (c.state == State::idle) return close(place);  // closed, or a word nobody asked for (408)
      if (n <= 0) return lost(place, n < 0 ? reason(errno) : "", tell);
      const double at_s = now_s();
      std::string_view bytes(buffer.data(), static_cast<size_t>(n));
      while (true) {
        const HttpResponseParser::Step step = c.parser.feed(bytes);
        bytes.remove_prefix(step.taken);
        if (step.event == HttpResponseParser::Event::more) break;
        if (step.event == HttpResponseParser::Event::head) {
          if (c.out_at == c.out.size()) c.out = {}, c.out_at = 0;
          tell({Kind::head, c.stream, at_s, {}, &c.parser});
        } else if (step.event == HttpResponseParser::Event::body) {
          tell({Kind::body, c.stream, at_s, step.body});
        } else if (step.event == HttpResponseParser::Event::done) {
          return finished(place, /*clean=*/bytes.empty(), at_s, tell);
        } else {
          const int64_t stream = c.stream;
          const std::string message = c.parser.message();
          close(place);
          return tell({Kind::bad_reply, stream, at_s, message});
        }
        if (c.generation != generation) return;  // hung up
      }
      if (static_cast<size_t>(n) < buffer.size()) return;
    }
  }

  template <typename Tell>
  void finished(size_t place, bool clean, double at_s, const Tell& tell) {
    Connection& c = connections[place];
    const int64_t stream = c.stream;
    if (clean && c.parser.keep_alive() && c.out_at == c.out.size()) {
      place_of.erase(stream);
      c.stream = -1;
      c.state = State::idle;
      c.may_resend = true;
      idle.push_back(place);
    } else {
      close(place);
    }
    tell({Kind::done, stream, at_s});
  }

  void drop_late_connections() {
    for (; !dialing.empty(); dialing.pop_front()) {
      const Dialing& d = dialing.front();
      const Connection& c = connections[d.place];
      const bool still = c.generation == d.generation && c.state == State::connecting;
      if (still && d.until_s > now_s()) return;
      if (!still) continue;
      close(d.place);
      no_connection("no answer in time");
    }
  }

  void arm(double until_s) {
    if (until_s == armed_s) return;
    const double whole = std::floor(until_s);
    itimerspec at{};
    at.it_value.tv_sec = static_cast<time_t>(whole);
    at.it_value.tv_nsec = std::max<long>(1, static_cast<long>((until_s - whole) * 1e9));
    ::timerfd_settime(timer.fd(), TFD_TIMER_ABSTIME, &at, nullptr);
    armed_s = until_s;
  }

  template <typename Tell>
  void tell_early(const Tell& tell) {
    while (!early.empty()) {
      const Early e = std::move(early.front());
      early.pop_front();
      tell({e.kind, e.stream, e.at_s, e.why});
    }
  }

  void wait(double until_s, const std::function<void(const HttpStreamReport&)>& tell) {
    drop_late_connections();
    pump();
    tell_early(tell);
    int patience_ms = 0;
    if (until_s > now_s()) {
      arm(dialing.empty() ? until_s : std::min(until_s, dialing.front().until_s));
      patience_ms = -1;  // until the timer
    }
    const int n = ::epoll_wait(poll.fd(), events.data(), kEvents, patience_ms);
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kTimer) {
        uint64_t times = 0;
        (void)!::read(timer.fd(), &times, sizeof times);
        armed_s = -1;
        continue;
      }
      const size_t place = event.data.u64 & 0xffffffff;
      const Connection& c = connections[place];
      if (c.generation != event.data.u64 >> 32) continue;
      if (c.state == State::connecting) {
        connected(place);
        continue;
      }
      if (c.waits_write && (event.events & EPOLLOUT) != 0) write(place);
      if ((event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) read(place, tell);
    }
    pump();
    tell_early(tell);
  }
};

HttpStreams::HttpStreams(const HttpStreamsSpec& spec) : impl_(std::make_unique<Impl>(spec)) {}
HttpStreams::~HttpStreams() = default;

void HttpStreams::reserve(int64_t connections) {
  Impl& io = *impl_;
  if (now_s() < io.ahead_again_s) return;
  while (static_cast<int64_t>(io.idle.size()) + io.connecting < connections)
    if (!io.open()) return;
}

void HttpStreams::send(int64_t stream, std::string request) {
  impl_->waiting.push_back({stream, std::move(request), true});
  impl_->pump();
}

void HttpStreams::hang_up(int64_t stream) {
  Impl& io = *impl_;
  std::erase_if(io.early, [&](const Impl::Early& e) { return e.stream == stream; });
  if (const auto at = io.place_of.find(stream); at != io.place_of.end()) io.close(at->second);
  else std::erase_if(io.waiting, [&](const Waiting& w) { return w.stream == stream; });
}

void HttpStreams::wait(double until_s, const std::function<void(const HttpStreamReport&)>& tell) {
  impl_->wait(until_s, tell);
}

int64_t HttpStreams::opened() const { return impl_->opened; }
int64_t HttpStreams::ready() const { return static_cast<int64_t>(impl_->idle.size()); }

}  // namespace rw
