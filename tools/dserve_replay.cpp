#include "tools/dserve_replay.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>

#include "libcore/base/error.h"
#include "libcore/serve/step_log.h"
#include "tools/cli.h"

namespace rw {

int dserve_replay(int argc, const char* const* argv) {
  std::string log;
  const CommandLine command{
      .name = "dserve replay",
      .description =
          "Asks a fresh scheduler for the plans of a log (steps.jsonl of dserve --log-steps) and compares "
          "them; exit 3 when one differs.",
      .fields = {{.name = "log", .value = &log, .help = "the file"}},
      .positional = {"log"},
      .required = {"log"},
      .takes_config = false};
  if (const auto code = parse_command_line(command, argc, argv)) return *code;
  const ReplayReport r = replay(log);
  const bool equal = r.first_difference < 0;
  Json json = {{"log", log},
               {"equal", equal},
               {"steps", r.steps},
               {"arrivals", r.arrivals},
               {"ends", r.ends},
               {"preemptions", r.preemptions},
               {"prefill_tokens", r.prefill_tokens},
               {"decode_tokens", r.decode_tokens},
               {"model_s", r.model_s},
               {"torn", r.torn}};
  if (!equal) {
    json["first_difference"] = r.first_difference;
    json["expected"] = Json::parse(r.expected, nullptr, /*allow_exceptions=*/false);
    json["found"] = Json::parse(r.found, nullptr, /*allow_exceptions=*/false);
  }
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (equal) return 0;
  fail(ErrorKind::verdict, "{}:{}: the scheduler planned otherwise", log, r.first_difference);
}

}  // namespace rw
