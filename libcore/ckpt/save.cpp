// Saving at once: what the background saver does, waited for.
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/ckpt/async_save.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/comm/agree.h"

namespace rw {

SaveReport save_checkpoint(const std::filesystem::path& checkpoints_dir, int64_t step,
                           const std::vector<TensorPiece>& pieces, const Json& identity, const Json& state, Comm& comm,
                           const CopyPiece& copy) {
  const double start_s = now_s();
  AsyncSaver saver({.durable = checkpoints_dir, .local = {}, .saver = {.copy = copy}}, comm);
  saver.request(
      {.step = step, .pieces = pieces, .identity = identity.dump(), .state = state.dump(), .must_differ = false});
  const SaveNews news = saver.settle().back();
  if (news.kind != SaveNews::Kind::committed)
    throw SharedError(ErrorKind::runtime,
                      fmt::format("checkpoint of step {}: {}; earlier checkpoints are untouched", step, news.error));
  int64_t bytes = 0;
  for (const TensorPiece& piece : pieces) bytes += piece.box.size() * dtype_bytes(piece.dtype);
  return {.seconds = now_s() - start_s, .bytes = comm.all_reduce_value(bytes, ReduceOp::sum)};
}

}  // namespace rw
