// --step N: which checkpoint of a run is meant, where it is not the newest.
#pragma once
#include <filesystem>
#include <string>

#include "libcore/base/fields.h"

namespace rw {

// A number that has no default: the flag's text, empty when it is not given.
Field step_field(std::string& step, const std::string& of = "");
// Error{usage} names the flag, unless the text is an integer of at least `min`.
int64_t number_of(const std::string& flag, const std::string& text, int64_t min);
// The path as it is without a step; the step's directory in the run or checkpoints directory that the path names. Error
// {usage} when the path is neither, Error{input} names the steps that are there.
std::filesystem::path path_with_step(const std::filesystem::path& path, const std::string& step);

}  // namespace rw
