// Templates in the part of Jinja that published chat templates use, as Hugging Face's transformers sets it up:
// sandboxed, blocks trimmed, undefined names empty. A template cannot read or change anything outside its variables,
// and ends within limits of steps, memory and depth.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "libcore/base/json.h"
#include "libcore/text/jinja/value.h"

namespace rw::jinja {

struct RenderArguments {
  const Json& variables;  // an object; its members are the names that the template sees
  std::tm now = {};       // what strftime_now shows
  Limits limits = {};
};

// Immutable once made: any number of threads may render with one.
class Template {
 public:
  // `where` is how messages call it. Error{input} with the line when it cannot be parsed.
  Template(std::string_view source, std::string where);
  ~Template();
  // Error{input} with the line: the template raised an exception, did what cannot be done, or passed a limit.
  std::string render(const RenderArguments& arguments) const;

 private:
  struct Parsed;
  std::string where_;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace rw::jinja
