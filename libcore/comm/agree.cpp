#include "libcore/comm/agree.h"

#include <algorithm>
#include <optional>

namespace rw {

void agree(Comm& comm, const std::function<void()>& body) {
  std::optional<Error> mine;
  try {
    body();
  } catch (const SharedError&) {
    throw;  // all ranks threw it already
  } catch (const Error& e) {
    mine = e;
  }
  if (comm.size() == 1) {
    if (mine) throw SharedError(mine->kind(), mine->what());
    return;
  }
  // One letter for the kind, then the message; empty when all is well.
  const std::string text =
      mine ? std::string(1, static_cast<char>('0' + static_cast<int>(mine->kind()))) + mine->what() : "";
  const std::vector<std::string> all = comm.gather_text(text);
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& t) { return !t.empty(); });
  if (first == all.end()) return;
  const bool same = std::all_of(all.begin(), all.end(), [&](const std::string& t) { return t == *first; });
  const auto rank = static_cast<size_t>(first - all.begin());
  const std::string message = first->substr(1);
  throw SharedError(static_cast<ErrorKind>((*first)[0] - '0'),
                    same ? message : fmt::format("rank {} on {}: {}", rank, comm.hosts()[rank], message));
}

}  // namespace rw
