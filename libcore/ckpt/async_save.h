// Saves of a training run that go on behind its steps, on all ranks together.
//
// A save is requested at a step boundary; each rank's file is staged and written by its ShardSaver; when all ranks have
// said (in an exchange that the steps make anyway) that they are done, the main threads commit at a later boundary. One
// save is under way at a time; the background threads never touch the communicator.
//
// With a local tier the files go to a directory of the node, each is copied to a rank of another node (messages under
// way during the next steps), and each node commits its own directory. What is to be durable is then uploaded from
// there, at the disk's leisure, while further local saves go on.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "libcore/ckpt/shard_saver.h"
#include "libcore/comm/comm.h"

namespace rw {

struct AsyncSaveOptions {
  std::filesystem::path durable;  // checkpoints folder on storage that all ranks share
  std::filesystem::path local;    // this node's own folder; empty: no local tier
  SaverOptions saver;
};

struct SaveRequest {
  int64_t step = 0;
  std::vector<TensorPiece> pieces;  // as for save_checkpoint()
  std::string identity, state;      // JSON texts of rank 0
  bool durable = true, local = false;
  // The weights were updated since the last save by a step with a learning rate and a gradient: weights that are all
  // the same as in it are then a sign that something old or dead is being saved, and the save fails.
  bool must_differ = false;
};

// What became of a save, the same on all ranks.
struct SaveNews {
  enum class Kind { written, committed, failed, stale, skipped };
  Kind kind{};
  int64_t step = 0;
  std::string tier{};                    // "durable" or "local"
  std::string error{};                   // failed, stale, skipped: why
  std::vector<std::string> unchanged{};  // committed although these trained tensors are as in the last save
  double blocking_s = 0;                 // of the main thread, the largest of any rank, since the request
  double background_s = 0;               // since the request, until every file was on disk
  int64_t bytes = 0;                     // of all files
};

// What every rank adds to the others' once a step: [0] 1 when its part of the save is over, [1] of the upload.
using SaveVotes = std::array<int64_t, 2>;

class AsyncSaver {
 public:
  // Collective. `comm` outlives this.
  AsyncSaver(const AsyncSaveOptions& options, Comm& comm);
  ~AsyncSaver();  // what is under way is given up

  // Takes the memory that saves of these pieces need, and touches it in the background.
  void prepare(const std::vector<TensorPiece>& pieces);
  // Collective. False, and nothing is done, when a save is under way (an upload of an earlier one is no obstacle).
  bool request(SaveRequest request);
  // To be called on each rank before the pieces' memory changes.
  void finish_staging();
  // This rank's votes; `sums` over all ranks of the votes of one and the same call go to advance(), collective.
  SaveVotes votes();
  std::vector<SaveNews> advance(const SaveVotes& sums);
  // Collective. Waits for all that is under way, an upload included, however slow the disk. `waiting` (may be null) is
  // called about once a second meanwhile.
  std::vector<SaveNews> settle(const std::function<void(double seconds)>& waiting = nullptr);
  bool saving() const;  // request() would be refused; the same on all ranks
  bool idle() const;    // nothing is under way, no upload either; the same on all ranks
  // Main thread's seconds since the last call.
  double take_blocking_s();
  int64_t pool_bytes() const;
  // Digests of weights that the next save is compared with: those of the checkpoint a run goes on from.
  void compare_with(const Manifest& manifest);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
