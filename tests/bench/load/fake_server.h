// A server whose replies are scripted byte for byte and pause for pause. Raw sockets on loopback, a thread a
// connection, so that it can also do what no server should.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rw::testing {

struct FakePiece {
  double pause_s = 0;  // before it goes out
  std::string bytes;
};
enum class FakeEnd : uint8_t { keep, close, reset };
struct FakeReply {
  std::vector<FakePiece> pieces;
  FakeEnd end = FakeEnd::keep;
};
struct FakeRequest {
  int64_t number = 0;      // in the order they came
  int64_t connection = 0;  // in the order they were accepted
  int64_t at_once = 0;     // requests without a complete reply, this one included
  double at_s = 0;         // now_s() when it was complete
  std::string head, body;
  std::string header(std::string_view name) const;  // as sent; "" when absent
};

class FakeServer {
 public:
  using Script = std::function<FakeReply(const FakeRequest&)>;
  // `max_accepts`: then it stops listening.
  explicit FakeServer(Script script, int64_t max_accepts = INT64_MAX);
  ~FakeServer();
  std::string url() const;
  int port() const { return port_; }
  std::vector<FakeRequest> requests() const;
  int64_t hang_ups() const { return hang_ups_; }  // the peer went before its reply was complete

 private:
  void accept_all(int64_t max_accepts);
  void serve(int fd, int64_t connection);
  bool read_request(int fd, std::string& in, FakeRequest& request) const;
  bool send_all(int fd, const FakeReply& reply);
  bool pause(int fd, double seconds) const;

  const Script script_;
  int listener_ = -1, port_ = 0, stop_pipe_[2] = {-1, -1};
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  int64_t under_way_ = 0;
  std::atomic<int64_t> hang_ups_ = 0;
  std::vector<std::thread> connections_;
  std::thread acceptor_;
};

// "HTTP/1.1 STATUS X", the headers (each "Name: value\r\n") and the empty line.
std::string fake_head(int status, std::string_view headers = "");
std::string fake_chunk(std::string_view bytes);
// A whole reply with its length.
FakeReply fake_whole(int status, std::string_view body,
                     std::string_view headers = "Content-Type: application/json\r\n");
// A chunked stream of events, each after its pause; "data: " and the blank line are added.
FakeReply fake_stream(const std::vector<FakePiece>& events, std::string_view headers = "");
// A chunk of a completion with a text.
std::string fake_text(std::string_view text);
// The last chunk: no text, a finish_reason, usage.
std::string fake_last(int64_t prompt_tokens, int64_t completion_tokens);

}  // namespace rw::testing
