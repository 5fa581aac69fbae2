// The API as a server: listens before there is a model, serves it, drains, stops.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "libcore/api/served_model.h"
#include "libcore/serve/engine.h"
#include "libcore/spec/serve_spec.h"

namespace rw {

class ApiServer {
 public:
  explicit ApiServer(const ServeSpec& spec);
  ~ApiServer();
  // Listens; /health says that the model is being loaded. Returns the port. Error{runtime} when the address is taken.
  int start();
  // From here on requests are served. Tokenizer, template and engine outlive this server's run; the engine must have
  // been stopped before this object goes.
  void serve(ServedModel model, Engine& engine);
  // /health is 503, new requests are refused; those under way go on.
  void drain();
  int64_t live_requests() const;  // whose reply is not over
  // What fails from here on fails because the server stops: 503, not 500.
  void stopping();
  // Closes everything, waiting up to patience_s for replies to be written.
  void stop(double patience_s);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
