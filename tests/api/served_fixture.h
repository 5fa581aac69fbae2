// The API over real sockets with an engine that the test plays.
#pragma once
#include <memory>
#include <string>

#include "libcore/api/server.h"
#include "tests/api/fake_engine.h"
#include "tests/api/test_client.h"

namespace rw {

// <role>content</role> for each message, then <assistant>; raises on the role "bad".
class TestTemplate : public ChatTemplate {
 public:
  std::string render(const Json& messages, bool add_generation_prompt, const Json& variables) const override;
  std::string name() const override { return "tokenizer_config.json"; }
};

// A tokenizer of bytes whose template puts 256 before a text.
std::unique_ptr<Tokenizer> bos_tokenizer();

struct Served {
  explicit Served(ServeSpec spec = {}, bool load = true);
  ~Served();
  void load();

  std::unique_ptr<Tokenizer> tokenizer = bos_tokenizer();
  TestTemplate chat_template;
  FakeEngine engine;
  ApiServer server;
  int port;
};

}  // namespace rw
