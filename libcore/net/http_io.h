// Sockets and i/o threads: accepts connections, carries bytes between them and their sessions, and ticks the sessions.
#pragma once
#include <memory>

#include "libcore/net/http_app.h"

namespace rw {

class HttpIo {
 public:
  explicit HttpIo(std::shared_ptr<HttpApp> app);
  ~HttpIo();
  // Binds spec.host:spec.port, starts the threads and accepts; returns the port. Error{runtime}.
  int listen();
  void stop_listening();
  // Closes idle connections; the others close after their reply (app.draining). Waits for the replies under way.
  void drain(double patience_s);
  // Breaks all connections, ends the threads.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
