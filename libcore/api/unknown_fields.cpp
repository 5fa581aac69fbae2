#include "libcore/api/unknown_fields.h"

#include "libcore/api/json_text.h"
#include "libcore/base/log.h"

namespace rw {
namespace {

constexpr size_t kMaxNames = 256, kMaxBytes = 64;

}  // namespace

std::vector<std::string> UnknownFields::fresh(const std::vector<std::string>& names) {
  std::vector<std::string> fresh;
  if (names.empty()) return fresh;
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names)
    if (name.size() <= kMaxBytes && seen_.size() < kMaxNames && seen_.insert(name).second) fresh.push_back(name);
  return fresh;
}

void UnknownFields::tell(const std::vector<std::string>& names) {
  for (const std::string& name : fresh(names)) {
    std::string quoted;  // a name may hold anything, a log's line may not
    append_json_string(quoted, name);
    log_warning("a request has the field {}, which is not known here and does nothing (told once)", quoted);
  }
}

}  // namespace rw
