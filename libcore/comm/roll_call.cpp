#include "libcore/comm/roll_call.h"

#include <fmt/core.h>

#include "libcore/base/error.h"
#include "libcore/comm/patience.h"

namespace rw {

std::vector<std::optional<Attendance>> RollCall::ask(const std::vector<int>& members, Attendance mine,
                                                     double patience_s) {
  mine_ = mine;
  answers_.assign(members.size(), {});
  std::vector<std::optional<Attendance>> heard(members.size());
  std::vector<Request> answers(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == comm_->rank()) continue;
    comm_->send_start(&mine_, sizeof mine_, members[i], 0);
    answers[i] = comm_->recv_start(&answers_[i], sizeof answers_[i], members[i], 0);
  }
  Patience patience(nullptr, false);
  try {
    while (true) {
      comm_->progress();
      size_t n_open = 0;
      for (size_t i = 0; i < members.size(); ++i) {
        if (members[i] == comm_->rank()) heard[i] = mine;
        else if (!heard[i] && comm_->done(answers[i])) heard[i] = answers_[i];
        n_open += !heard[i];
      }
      if (n_open == 0 || patience.waited_s() > patience_s) break;
      patience.pause();
    }
  } catch (const Error&) {  // a peer that died in between does not answer
  }
  return heard;
}

std::string RollCall::missing(const std::vector<int>& members, Attendance mine, double patience_s) {
  const auto heard = ask(members, mine, patience_s);
  const std::vector<std::string> hosts = comm_->hosts();
  const std::vector<int> world = comm_->world_ranks();
  std::string text;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto member = static_cast<size_t>(members[i]);
    const std::string who = fmt::format("{}rank {} on host {}", text.empty() ? "" : ", ", world[member], hosts[member]);
    if (!heard[i]) text += who + " did not arrive";
    else if (heard[i]->channel != mine.channel) text += who + " waits at another operation";
    else if (heard[i]->started < mine.started) text += who + " did not come that far";
  }
  return text.empty() ? "all its ranks arrived and it did not finish (NCCL_DEBUG=INFO says more)" : text;
}

}  // namespace rw
