// Files of JSON lines that programs leave: the last line may be cut off, and the file may be anything.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "libcore/base/json.h"

namespace rw {

// Calls use(object, its text) for each line that is a JSON object; returns how many others there are, empty ones not
// counted. A file that is not there has no lines. Error{input}: no regular file, or one that cannot be read.
int64_t for_each_json_line(const std::filesystem::path& file,
                           const std::function<void(const Json&, const std::string&)>& use);

}  // namespace rw
