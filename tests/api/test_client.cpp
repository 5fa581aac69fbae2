#include "tests/api/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace rw {

std::vector<std::string> TestReply::events() const {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) throw std::runtime_error("an event without end: " + body.substr(at));
    const std::string event = body.substr(at, end - at);
    if (event.rfind("data: ", 0) == 0) events.push_back(event.substr(6));
    else if (event.rfind(':', 0) != 0) throw std::runtime_error("neither data nor comment: " + event);
    at = end + 2;
  }
  return events;
}

TestClient::TestClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("connect failed");
}
TestClient::~TestClient() {
  if (fd_ >= 0) ::close(fd_);
}

void TestClient::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(fd_);
  fd_ = -1;
}

void TestClient::send(const std::string& method, const std::string& path, const std::string& body,
                      const Headers& headers) {
  std::string text =
      method + " " + path + " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  text += "\r\n" + body;
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::send(fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n <= 0) throw std::runtime_error("send failed");
    done += static_cast<size_t>(n);
  }
}

bool TestClient::fill() {
  char bytes[1 << 14];
  const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
  if (n < 0) throw std::runtime_error("nothing came within 10 s, or the connection was reset");
  buffer_.append(bytes, static_cast<size_t>(n));
  return n > 0;
}

std::string TestClient::receive_until(std::string_view text) {
  size_t at;
  while ((at = buffer_.find(text)) == std::string::npos)
    if (!fill()) return "";
  std::string out = buffer_.substr(0, at + text.size());
  buffer_.erase(0, out.size());
  return out;
}

TestReply TestClient::receive() {
  TestReply reply;
  const std::string head = receive_until("\r\n\r\n");
  if (head.size() < 12) throw std::runtime_error("no reply");
  reply.status = std::atoi(head.c_str() + 9);
  for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
    const size_t end = head.find("\r\n", at), colon = head.find(':', at);
    std::string name = head.substr(at, colon - at);
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    const size_t value = head.find_first_not_of(' ', colon + 1);
    reply.headers[name] = head.substr(value, end - value);
    at = end + 2;
  }
  if (reply.headers.count("transfer-encoding") == 1) {
    for (;;) {
      const std::string line = receive_until("\r\n");
      if (line.empty()) throw std::runtime_error("a stream that does not end: " + reply.body);
      const size_t size = std::strtoul(line.c_str(), nullptr, 16);
      while (buffer_.size() < size + 2)
        if (!fill()) throw std::runtime_error("half a chunk");
      reply.body += buffer_.substr(0, size);
      buffer_.erase(0, size + 2);
      if (size == 0) return reply;
    }
  }
  const size_t length = std::strtoul(reply.headers["content-length"].c_str(), nullptr, 10);
  while (buffer_.size() < length)
    if (!fill()) throw std::runtime_error("half a body");
  reply.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  return reply;
}

TestReply post(int port, const std::string& path, const std::string& body, const TestClient::Headers& headers) {
  TestClient client(port);
  client.send("POST", path, body, headers);
  return client.receive();
}

TestReply get(int port, const std::string& path, const TestClient::Headers& headers) {
  TestClient client(port);
  client.send("GET", path, "", headers);
  return client.receive();
}

}  // namespace rw
