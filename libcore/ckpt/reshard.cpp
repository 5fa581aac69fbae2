#include "libcore/ckpt/reshard.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/page_pool.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/commit.h"
#include "libcore/ckpt/reshard_target.h"
#include "libcore/comm/agree.h"

namespace rw {

namespace {

constexpr int64_t kBandBytes = int64_t{32} << 20;    // large enough for the disk's full speed
constexpr int64_t kThreadBytes = int64_t{16} << 20;  // with less each, fewer threads do better

int64_t bytes_of(const TensorInfo& t) { return n_elements(t.shape) * dtype_bytes(t.dtype); }

// The new files hold the source's tensors, all of them, in their shapes and types.
void check_tensors(const RowSource& source, const NewCheckpoint& target) {
  std::vector<bool> found(source.tensors().size(), false);
  for (const auto& file : target.files) {
    for (const TensorPiece& piece : file) {
      const TensorInfo* tensor = find_tensor(source.tensors(), piece.name);
      if (tensor == nullptr)
        fail(ErrorKind::input, "{}: expected tensor {}, found none of that name", source.where(), piece.name);
      if (tensor->shape != piece.shape || tensor->dtype != piece.dtype)
        fail(ErrorKind::input, "{}: tensor {}: expected {} {}, found {} {}", source.where(), piece.name,
             dtype_name(piece.dtype), shape_text(piece.shape), dtype_name(tensor->dtype), shape_text(tensor->shape));
      found[static_cast<size_t>(tensor - source.tensors().data())] = true;
    }
  }
  const auto missing = std::find(found.begin(), found.end(), false);
  if (missing != found.end())
    fail(ErrorKind::input, "{}: tensor {} has no place in the new layout: it is none of the model's", source.where(),
         source.tensors()[static_cast<size_t>(missing - found.begin())].name);
}

// Largest first, each to the rank that has least: the same on every rank.
std::vector<size_t> share_of(const std::vector<TensorInfo>& tensors, const Comm& comm) {
  std::vector<size_t> order(tensors.size()), mine;
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes_of(tensors[a]) > bytes_of(tensors[b]); });
  std::vector<int64_t> load(static_cast<size_t>(comm.size()), 0);
  for (const size_t t : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += bytes_of(tensors[t]) + 1;
    if (least - load.begin() == comm.rank()) mine.push_back(t);
  }
  return mine;
}

// Tensors of this process on their way, by several threads.
class Stream {
 public:
  Stream(const RowSource& source, TargetFiles& files, const ReshardOptions& options, std::vector<size_t> tensors)
      : source_(source), files_(files), options_(options), tensors_(std::move(tensors)) {
    threads_ = static_cast<int>(std::clamp<int64_t>(options.memory_bytes / kThreadBytes, 1, options.threads));
    for (const size_t t : tensors_) {
      const int64_t need = memory_for(t, 1);
      if (need > options.memory_bytes)
        fail(ErrorKind::usage,
             "--memory {} is too small: a row of tensor {} and what it is cut into need {}; give that or more",
             format_bytes(static_cast<double>(options.memory_bytes)), source_.tensors()[t].name,
             format_bytes(static_cast<double>((need + 1023) / 1024 * 1024)));
      while (threads_ > 1 && need > options.memory_bytes / threads_) --threads_;
    }
    threads_ = std::min(threads_, static_cast<int>(std::max<size_t>(1, tensors_.size())));
  }

  // The digests of each tensor's pieces.
  std::vector<std::vector<uint64_t>> run() {
    digests_.resize(tensors_.size());
    std::vector<std::thread> others;
    for (int i = 1; i < threads_; ++i) others.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : others) thread.join();
    if (error_) std::rethrow_exception(error_);
    return std::move(digests_);
  }
  const std::vector<size_t>& tensors() const { return tensors_; }

 private:
  int64_t memory_for(size_t tensor, int64_t rows) const {
    return source_.open(tensor)->buffer_bytes(rows) + RowWriter(files_, source_.tensors()[tensor]).buffer_bytes(rows) +
           2 * RowFile::kAlign;
  }

  void work() {
    try {
      PagePool pool;  // kept from tensor to tensor: fresh memory costs more than what is done with it
      for (size_t i = next_++; i < tensors_.size() && !stop_; i = next_++) digests_[i] = move_tensor(tensors_[i], pool);
    } catch (...) {
      stop_ = true;
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  std::vector<uint64_t> move_tensor(size_t t, PagePool& pool) {
    const TensorInfo& tensor = source_.tensors()[t];
    const auto reader = source_.open(t);
    RowWriter writer(files_, tensor);
    const int64_t rows = n_rows(tensor.shape), row = row_bytes(tensor);
    const int64_t fixed = memory_for(t, 0), each = std::max<int64_t>(1, memory_for(t, 1) - fixed);
    const int64_t fit = (options_.memory_bytes / threads_ - fixed) / each;
    const int64_t step =
        std::max<int64_t>(1, std::min({fit, kBandBytes / std::max<int64_t>(1, row), std::max<int64_t>(1, rows)}));
    const int64_t in_bytes = (reader->buffer_bytes(step) + RowFile::kAlign - 1) / RowFile::kAlign * RowFile::kAlign;
    pool.need(in_bytes + writer.buffer_bytes(step));
    char *const in = pool.data(), *const out = pool.data() + in_bytes;
    for (int64_t first = 0; first < rows && row > 0 && !stop_; first += step) {
      const Band band{first, std::min(step, rows - first)};
      writer.write(band, reader->read(band, in), out);
      if (options_.progress) options_.progress(band.n * row);
    }
    if (stop_) return {};
    reader->finish();
    return writer.finish(out);
  }

  const RowSource& source_;
  TargetFiles& files_;
  const ReshardOptions& options_;
  std::vector<size_t> tensors_;
  int threads_ = 1;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::vector<uint64_t>> digests_;
};

// "TENSOR DIGEST DIGEST ...", a line a tensor.
std::string digests_text(const std::vector<size_t>& tensors, const std::vector<std::vector<uint64_t>>& digests) {
  std::string text;
  for (size_t i = 0; i < tensors.size(); ++i) {
    text += std::to_string(tensors[i]);
    for (const uint64_t d : digests[i]) text += " " + hex64(d);
    text += "\n";
  }
  return text;
}

// Every file's record, from what all ranks say.
std::vector<ShardRecord> records(const RowSource& source, const TargetFiles& files, const NewCheckpoint& target,
                                 const std::vector<std::string>& reports) {
  std::vector<std::vector<uint64_t>> digests;
  for (const auto& file : target.files) digests.emplace_back(file.size(), 0);
  for (const std::string& report : reports) {
    std::istringstream lines(report);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      size_t tensor = 0;
      words >> tensor;
      for (const TargetPiece& piece : files.pieces(source.tensors().at(tensor).name)) {
        std::string digest;
        words >> digest;
        digests[piece.file][piece.index] = parse_hex64(digest);
      }
    }
  }
  std::vector<ShardRecord> shards;
  for (size_t f = 0; f < files.size(); ++f) shards.push_back(files.record(f, digests[f]));
  return shards;
}

}  // namespace

ReshardReport reshard(const RowSource& source, const NewCheckpoint& target, const ReshardOptions& options, Comm& comm) {
  const double start_s = now_s();
  const bool first = comm.rank() == 0;
  std::unique_ptr<TargetFiles> files;
  std::unique_ptr<Stream> stream;
  agree(comm, [&] {
    check_tensors(source, target);
    files = std::make_unique<TargetFiles>(unfinished_path(target.checkpoints_dir, target.step), target.files);
    stream = std::make_unique<Stream>(source, *files, options, share_of(source.tensors(), comm));
  });
  try {
    agree(comm, [&] {
      if (first) prepare_step(target.checkpoints_dir, target.step);
    });
    const auto mine = [&](int64_t i) { return i % comm.size() == comm.rank(); };
    agree(comm, [&] {
      for (size_t f = 0; f < files->size(); ++f)
        if (mine(static_cast<int64_t>(f))) files->create(f);
      for (int64_t i = 0; i < source.n_rests(); ++i)
        if (mine(i)) source.check_rest(i);
    });
    std::string report;
    agree(comm, [&] {
      report = digests_text(stream->tensors(), stream->run());
      files->sync();
    });
    const std::vector<std::string> reports = comm.gather_text(report);
    agree(comm, [&] {
      if (!first) return;
      commit_step(target.checkpoints_dir,
                  make_manifest(target.step, target.identity, target.state, records(source, *files, target, reports)));
    });
  } catch (...) {
    if (first) abandon_step(target.checkpoints_dir, target.step);
    throw;
  }
  ReshardReport done;
  for (const TensorInfo& t : source.tensors()) done.bytes += bytes_of(t);
  done.seconds = now_s() - start_s;
  return done;
}

}  // namespace rw
