// The prompts of --warmup: computed before the server is ready, and kept in the prefix cache.
#pragma once
#include <string>
#include <vector>

#include "libcore/api/served_model.h"
#include "libcore/serve/live_engine.h"

namespace rw {

// A JSON object a line: "prompt" (text or ids, tokenized as /v1/completions would) or "messages" (rendered as
// /v1/chat/completions would, "tools" and "add_generation_prompt" beside them; false by default, so that what users say
// next may follow), and "name" (default: the line's number), "cache_salt", "ttl" in seconds (default: for good). Empty
// lines are passed over. Error{input} names file and line. An empty path: none.
std::vector<WarmPrompt> read_warmup_file(const std::string& path, const ServedModel& model);

}  // namespace rw
