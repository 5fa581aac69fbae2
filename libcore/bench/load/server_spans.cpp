#include "libcore/bench/load/server_spans.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr const char* kOrder[] = {"receive", "tokenize", "queue", "prefill", "decode", "preempted", "stream"};

struct Account {
  std::map<std::string, double> ms;  // by span, several of a name together
  double end_ms = 0;
};

std::unordered_map<std::string, Account> read_accounts(std::string_view lines, const std::string& where) {
  std::unordered_map<std::string, Account> accounts;
  int64_t number = 0;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    if (end == std::string_view::npos) break;  // the server is in the middle of it
    const std::string_view line = lines.substr(at, end - at);
    at = end + 1;
    const std::string place = where + ":" + std::to_string(++number);
    const Json json = parse_json(line, place);
    if (!json.is_object() || !json.contains("spans") || !json["spans"].is_array())
      fail(ErrorKind::input, "{}: expected an object with request_id and spans, found {:.200}", place, line);
    Account account;
    for (const Json& span : json["spans"]) {
      const double from = json_number(span, "start_ms", place), to = json_number(span, "end_ms", place);
      account.ms[json_string(span, "name", place)] += to - from;
      account.end_ms = std::max(account.end_ms, to);
    }
    accounts.emplace(json_string(json, "request_id", place), std::move(account));
  }
  return accounts;
}

}  // namespace

SpanJoin join_server_spans(const LoadRun& run, std::string_view lines, const std::string& where) {
  const auto accounts = read_accounts(lines, where);
  SpanJoin join;
  std::map<std::string, std::vector<double>> values;
  for (const LoadOutcome& o : run.outcomes) {
    if (o.end != LoadEnd::ok) continue;
    const auto found = accounts.find(o.request_id);
    if (found == accounts.end()) {
      ++join.missing;
      continue;
    }
    ++join.joined;
    for (const auto& [name, ms] : found->second.ms) values[name].push_back(ms);
    values["network"].push_back(1e3 * (o.end_s - o.sent_s) - found->second.end_ms);
  }
  for (const char* name : kOrder)
    if (const auto it = values.find(name); it != values.end()) join.spans.emplace_back(name, summarize_ms(it->second));
  if (join.joined > 0) join.spans.emplace_back("network", summarize_ms(values["network"]));
  return join;
}

}  // namespace rw
