// The chat templates that come with us, by name: formats that many models share.
#pragma once
#include <string>
#include <vector>

namespace rw {

struct BuiltinChatTemplate {
  std::string name, source;
};
std::vector<BuiltinChatTemplate> builtin_chat_templates();

}  // namespace rw
