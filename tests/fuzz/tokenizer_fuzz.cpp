// Any bytes as a tokenizer.json: it parses or is refused with an Error; one that parses encodes and decodes a little
// text.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/text/tokenizer.h"

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  rw::set_log_level(rw::LogLevel::error);
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = rw::parse_tokenizer(json, "fuzz");
    std::vector<int32_t> ids;
    tokenizer->encode("The 12 it's  <|endoftext|> \r\n\xE6\x9D\xB1\xF0\x9F\x98\x80\xFF xxxxxxxxxxxx", ids);
    tokenizer->encode("<s> e\xCC\x81 </s>", ids, rw::Tokenizer::Specials::as_text);
    ids.push_back(INT32_MAX);
    ids.push_back(-1);
    (void)tokenizer->decode(ids);
    (void)tokenizer->identity();
    for (const int32_t id : ids) (void)tokenizer->is_special(id);
  } catch (const rw::Error&) {
  }
}
