// A plain HTTP/1.1 client over one socket, as far as tests of the API need one. Every wait ends after 10 seconds.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

struct TestReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  std::vector<std::string> events() const;     // what stands after "data: " in a stream of events
};

class TestClient {
 public:
  explicit TestClient(int port);
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  using Headers = std::vector<std::pair<std::string, std::string>>;
  void send(const std::string& method, const std::string& path, const std::string& body = "",
            const Headers& headers = {});
  TestReply receive();                               // a whole reply
  std::string receive_until(std::string_view text);  // raw bytes, up to and with it; "" when the peer closed before
  void reset();                                      // closes at once, with RST

 private:
  bool fill();

  int fd_;
  std::string buffer_;
};

// One request on a connection of its own.
TestReply post(int port, const std::string& path, const std::string& body, const TestClient::Headers& headers = {});
TestReply get(int port, const std::string& path, const TestClient::Headers& headers = {});

}  // namespace rw
