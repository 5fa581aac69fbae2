// The model behind the API, as far as the API needs to know it.
#pragma once
#include <cstdint>
#include <string>

#include "libcore/spec/model_spec.h"
#include "libcore/text/chat_template.h"
#include "libcore/text/tokenizer.h"

namespace rw {

struct ServedModel {
  std::string name;                             // in /v1/models and in requests
  std::string identity;                         // of weights, precision and tokenizer: the system_fingerprint
  std::string path;                             // where it came from
  const Tokenizer* tokenizer = nullptr;         // both outlive the server
  const ChatTemplate* chat_template = nullptr;  // null: chats are refused
  std::string tokenizer_config;                 // tokenizer_config.json, for templates that requests bring; or empty
  ModelSpec spec;
  int64_t max_model_len = 0;
  int64_t created = 0;         // seconds since 1970
  std::string device = "cpu";  // by name: "cuda:0 (NVIDIA H200)"
};

}  // namespace rw
