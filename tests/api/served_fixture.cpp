#include "tests/api/served_fixture.h"

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

namespace rw {
namespace {

class BosTokenizer : public Tokenizer {
 public:
  BosTokenizer() : bytes_(byte_tokenizer()), template_{.before = {256}, .after = {}} {}
  int64_t vocab_size() const override { return bytes_->vocab_size(); }
  void encode(std::string_view text, std::vector<int32_t>& ids, Specials specials) const override {
    bytes_->encode(text, ids, specials);
  }
  std::string_view token_bytes(int32_t id) const override { return bytes_->token_bytes(id); }
  bool is_special(int32_t id) const override { return bytes_->is_special(id); }
  int32_t id_of(std::string_view content) const override { return bytes_->id_of(content); }
  const std::string& json() const override { return bytes_->json(); }
  const TextTemplate& text_template() const override { return template_; }
  int32_t end_of_text() const override { return bytes_->end_of_text(); }

 private:
  std::unique_ptr<Tokenizer> bytes_;
  TextTemplate template_;
};

ServeSpec on_a_free_port(ServeSpec spec) {
  spec.port = 0;
  return spec;
}

}  // namespace

std::unique_ptr<Tokenizer> bos_tokenizer() { return std::make_unique<BosTokenizer>(); }

std::string TestTemplate::render(const Json& messages, bool add_generation_prompt, const Json& variables) const {
  std::string text = "<|endoftext|>";
  if (variables.contains("tools")) text += "tools:" + std::to_string(variables["tools"].size());
  for (const Json& m : messages) {
    const auto role = m["role"].get<std::string>();
    if (role == "bad") fail(ErrorKind::input, "roles must alternate");
    text += "<" + role + ">" + m["content"].get<std::string>() + "</" + role + ">";
  }
  return add_generation_prompt ? text + "<assistant>" : text;
}

Served::Served(ServeSpec spec, bool load_now) : server(on_a_free_port(std::move(spec))), port(server.start()) {
  if (load_now) load();
}

void Served::load() {
  ServedModel model{.name = "m",
                    .identity = "0123456789abcdef",
                    .path = "/models/m",
                    .tokenizer = tokenizer.get(),
                    .chat_template = &chat_template,
                    .max_model_len = 64,
                    .created = 1700000000};
  model.spec.vocab_size = 260;
  server.serve(std::move(model), engine);
}

Served::~Served() {
  server.stop(0);
  engine.stop("end of the test");
}

}  // namespace rw
