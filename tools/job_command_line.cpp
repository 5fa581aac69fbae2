#include "tools/job_command_line.h"

#include "libcore/base/log.h"
#include "libcore/comm/agree.h"

namespace rw {

std::optional<int> parse_job_command_line(const CommandLine& line, int argc, const char* const* argv, Comm& world) {
  std::optional<int> only_printed;
  agree(world, [&] {
    if (world.rank() == 0) only_printed = parse_command_line(line, argc, argv);
  });
  if (world.all_reduce_value(static_cast<int64_t>(only_printed.has_value()), ReduceOp::max) != 0)
    return only_printed.value_or(0);
  const std::string toml = world.broadcast_text(world.rank() == 0 ? write_toml(line.fields) : "", 0);
  if (world.rank() != 0) read_toml(line.fields, toml, "rank 0's configuration", {});
  return std::nullopt;
}

int run_job(const std::string& name, Comm& world, const std::function<int()>& body) {
  try {
    return body();
  } catch (const SharedError& e) {
    if (world.rank() == 0) throw;
    return exit_code(e.kind());
  } catch (const std::exception& e) {
    if (world.size() == 1) throw;
    // Only this rank knows: the others wait for it and have to be ended.
    log_error("{} on {}: {}", name, world.hosts()[static_cast<size_t>(world.rank())], e.what());
    const auto* error = dynamic_cast<const Error*>(&e);
    abort_world(exit_code(error != nullptr ? error->kind() : ErrorKind::runtime));
  }
}

}  // namespace rw
