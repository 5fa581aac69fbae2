#include "libcore/bench/disk/checkpoint_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/ops.h"
#include "libcore/base/clock.h"
#include "libcore/bench/comm/job_quiet.h"
#include "libcore/bench/disk/bench_tensors.h"
#include "libcore/bench/disk/rank_rates.h"
#include "libcore/bench/disk/raw_file.h"
#include "libcore/bench/disk/scratch_dir.h"
#include "libcore/ckpt/async_save.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/file_digests.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/comm/agree.h"
#include "libcore/spec/model_spec.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

constexpr double kProductS = 0.05;  // of products between two looks at the save: a short training step

struct Samples {
  std::vector<double> memcpy_s, blocking_s, save_s, written_s, load, verify_ratio, write_ratio, slowdown, beside_s;
  RateSeries raw_write{"raw_write", {}}, save{"save", {}}, raw_read{"raw_read", {}}, verify{"verify", {}};
  int64_t file_bytes = 0;
};

class Bench {
 public:
  explicit Bench(const CheckpointBenchJob& job)
      : spec_(job.spec),
        comm_(job.comm),
        progress_(job.progress),
        stream_{.threads = static_cast<int>(job.spec.threads)} {
    agree(comm_, [&] { make(); });
    const std::string root = comm_.broadcast_text(scratch_ ? scratch_->path().string() : "", 0);
    checkpoints_ = fs::path(root) / "checkpoints";
    AsyncSaveOptions options;
    options.durable = checkpoints_;
    if (is_local())
      options.local = fs::path(root) / fmt::format("node-{}", comm_.nodes()[static_cast<size_t>(comm_.rank())]);
    options.saver.threads = static_cast<int>(spec_.threads);
    raw_ = fs::path(root) / fmt::format("raw-{}.bin", comm_.rank());
    copy_.need(tensors_->bytes());
    copy();  // first touch
    agree(comm_, [&] {
      std::error_code error;
      fs::create_directories(checkpoints_, error);
      if (is_local()) fs::create_directories(options.local, error);
      block_.emplace();
    });
    local_ = options.local;
    comm_.barrier();
    saver_.emplace(options, comm_);
    saver_->prepare(tensors_->pieces());
    save_at_once();  // the first one lays out the file and touches its memory, as a run's first does
    forget();
  }

  void repeat(Samples& s) {
    const int64_t bytes = tensors_->bytes();
    tell("copying in memory");
    s.memcpy_s.push_back(comm_.all_reduce_value(copy(), ReduceOp::max));
    tell("writing a raw file");
    const int64_t raw_bytes = (bytes + DirectFile::kAlignBytes - 1) / DirectFile::kAlignBytes * DirectFile::kAlignBytes;
    s.raw_write.repeats.push_back(
        rates(raw_bytes, [&] { return write_raw(raw_, raw_bytes, FileCache::bypass, *block_); }));
    tell("saving");
    const double start = now_s();
    const SaveNews news = save_at_once();
    const double save_s = now_s() - start;
    s.save.repeats.push_back(rank_rates(comm_, bytes, save_s));
    s.blocking_s.push_back(blocked_s_);
    s.save_s.push_back(comm_.all_reduce_value(save_s, ReduceOp::max));
    s.written_s.push_back(news.background_s);
    s.file_bytes = news.bytes;
    s.write_ratio.push_back(s.save.repeats.back().total / s.raw_write.repeats.back().total);
    read(s, raw_bytes);
    forget();
    tell("saving beside products");
    beside(s);
    forget();
    agree(comm_, [&] { fs::remove(raw_); });
  }

  const BenchTensors& tensors() const { return *tensors_; }
  int64_t pool_bytes() const { return saver_->pool_bytes(); }

 private:
  bool is_local() const { return spec_.tier == "local"; }
  void tell(const std::string& what) const {
    if (progress_) progress_(what);
  }

  void make() {
    std::optional<ModelSpec> model;
    if (!spec_.model.empty()) model = load_model_spec(spec_.model);
    const int64_t bytes = model ? BenchTensors::bytes_of(*model, comm_.rank(), comm_.size()) : spec_.size / 4 * 4;
    if (is_local() && *std::max_element(nodes_.begin(), nodes_.end()) == 0)
      fail(ErrorKind::usage,
           "--tier local keeps copies on another node: expected two nodes or more, found one; on one machine say "
           "--ranks-per-node");
    // The raw file, a checkpoint, and of the local tier a copy of it on another node.
    check_free_space(spec_.dir, bytes * comm_.size() * (is_local() ? 3 : 2) + (int64_t{64} << 20));
    if (comm_.rank() == 0) scratch_.emplace(spec_.dir);
    if (model) tensors_.emplace(*model, comm_.rank(), comm_.size());
    else tensors_.emplace(bytes, comm_.rank());
    for (std::vector<float>* m : {&a_, &b_, &c_}) m->assign(static_cast<size_t>(kSide * kSide), 0.5F);
  }

  // Seconds of a plain copy of the tensors with the caller's threads: what the blocking part cannot be below.
  double copy() {
    const double start = now_s();
    const int64_t n = tensors_->bytes(), threads = spec_.threads;
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
    for (int64_t t = 0; t < threads; ++t) {
      const int64_t begin = n * t / threads, end = n * (t + 1) / threads;
      std::memcpy(copy_.data() + begin, tensors_->data() + begin, static_cast<size_t>(end - begin));
    }
    return now_s() - start;
  }

  template <typename Work>
  RankRates rates(int64_t bytes, const Work& work) {
    double seconds = 0;
    comm_.barrier();
    agree(comm_, [&] { seconds = work(); });
    return rank_rates(comm_, bytes, seconds);
  }

  void request() {
    ++step_;
    SaveRequest r;
    r.step = step_;
    r.pieces = tensors_->pieces();
    r.identity = "{\"run_id\":\"dbench\"}";
    r.state = "{}";
    r.durable = !is_local();
    r.local = is_local();
    saver_->request(std::move(r));
  }

  static SaveNews committed(const std::vector<SaveNews>& news) {
    for (const SaveNews& n : news) {
      if (n.kind == SaveNews::Kind::committed) return n;
      if (n.kind != SaveNews::Kind::written)
        throw SharedError(ErrorKind::runtime, fmt::format("the save of step {} did not commit: {}", n.step, n.error));
    }
    return {};
  }

  SaveNews save_at_once() {
    comm_.barrier();
    const double start = now_s();
    request();
    saver_->finish_staging();
    blocked_s_ = comm_.all_reduce_value(now_s() - start, ReduceOp::max);
    return committed(saver_->settle());
  }

  fs::path step_dir() const {
    const fs::path root = is_local() ? local_ : checkpoints_;
    for (const auto& entry : fs::recursive_directory_iterator(root))
      if (entry.path().filename() == "manifest.json") return entry.path().parent_path();
    fail(ErrorKind::runtime, "{}: the checkpoint that was saved is not there", root.string());
  }

  // Of this rank's own file, from disk: raw, with its digests compared, and into memory.
  void read(Samples& s, int64_t raw_bytes) {
    tell("reading a raw file");
    bool cold = false;
    s.raw_read.repeats.push_back(rates(raw_bytes, [&] {
      cold = drop_from_cache(raw_) <= 0.05;
      return read_raw(raw_, ReadWay::buffered, *block_);
    }));
    const bool all_cold = comm_.all_reduce_value(int64_t{cold}, ReduceOp::min) > 0;
    if (!all_cold) s.raw_read.repeats.back() = {.total = NAN, .least = NAN, .most = NAN};
    tell("reading and verifying");
    std::vector<ExpectedFile> own;
    agree(comm_, [&] {
      const fs::path dir = step_dir();
      const Checkpoint checkpoint(dir, is_local() ? Checkpoint::Files::those_here : Checkpoint::Files::all);
      manifest_ = checkpoint.manifest();
      for (ExpectedFile& f : expected_files(manifest_, dir))
        if (f.record.name == fmt::format("rank-{:05d}.h5", comm_.rank())) own.push_back(std::move(f));
      if (own.empty()) fail(ErrorKind::runtime, "{}: no file of this rank", dir.string());
      drop_from_cache(own[0].path);
    });
    s.verify.repeats.push_back(rates(own[0].record.bytes, [&] {
      const double start = now_s();
      for (const std::string& fault : file_faults(own, 1, nullptr)) fail(ErrorKind::runtime, "{}", fault);
      return now_s() - start;
    }));
    if (all_cold) s.verify_ratio.push_back(s.verify.repeats.back().total / s.raw_read.repeats.back().total);
    tell("loading");
    double seconds = 0;
    comm_.barrier();
    agree(comm_, [&] {
      drop_from_cache(own[0].path);
      const double start = now_s();
      const Checkpoint checkpoint(own[0].path.parent_path(),
                                  is_local() ? Checkpoint::Files::those_here : Checkpoint::Files::all);
      char* to = copy_.data();
      for (const TensorPiece& piece : tensors_->pieces()) {
        if (piece.box.size() > 0) checkpoint.read(piece.name, piece.box, piece.dtype, to);
        to += piece.box.size() * 4;
      }
      seconds = now_s() - start;
      if (std::memcmp(copy_.data(), tensors_->data(), static_cast<size_t>(tensors_->bytes())) != 0)
        fail(ErrorKind::runtime, "{}: what was loaded is not what was saved", own[0].path.string());
    });
    s.load.push_back(rank_rates(comm_, tensors_->bytes(), seconds).total / 1e9);
  }

  // Products a second for at least `seconds` and until `over` says so, asked between short steps.
  template <typename Over>
  double products_per_s(double seconds, const Over& over) {
    Gemm product{.c = c_.data(),
                 .a = a_.data(),
                 .b = b_.data(),
                 .m = kSide,
                 .n = kSide,
                 .k = kSide,
                 .t = DType::f32,
                 .ct = DType::f32};
    product.lda = product.ldb = product.ldc = kSide;
    workspace_.need(std::max<int64_t>(cpu_ops().gemm_workspace(product, stream_), 1));
    product.workspace = workspace_.data();
    int64_t n = 0;
    double spent = 0;  // in the products, not in the questions
    const double start = now_s();
    bool done = false;
    while (!done || comm_.all_reduce_value(now_s() - start, ReduceOp::max) < seconds) {
      const double step = now_s();
      do {
        cpu_ops().gemm(product, stream_);
        ++n;
      } while (now_s() - step < kProductS);
      spent += now_s() - step;
      if (!done) done = over();
    }
    return static_cast<double>(n) / spent;
  }

  void beside(Samples& s) {
    const double quiet = products_per_s(spec_.loop_s, [] { return true; });
    comm_.barrier();
    const double start = now_s();
    request();
    // Until the save is over and no longer: what comes after it is quiet again.
    const double beside = products_per_s(0, [&] {
      saver_->finish_staging();
      SaveVotes sums = saver_->votes();
      comm_.all_reduce(sums.data(), static_cast<int64_t>(sums.size()), DType::i64, ReduceOp::sum);
      return committed(saver_->advance(sums)).step == step_;
    });
    s.beside_s.push_back(comm_.all_reduce_value(now_s() - start, ReduceOp::max));
    s.slowdown.push_back(100 * comm_.all_reduce_value(1 - beside / quiet, ReduceOp::max));
  }

  // Makes room for the next one.
  void forget() {
    comm_.barrier();
    agree(comm_, [&] {
      const auto first = std::find(nodes_.begin(), nodes_.end(), nodes_[static_cast<size_t>(comm_.rank())]);
      const auto lowest = static_cast<int>(first - nodes_.begin());  // rank of this node
      if (comm_.rank() == (is_local() ? lowest : 0)) fs::remove_all(step_dir());
    });
    comm_.barrier();
  }

  static constexpr int64_t kSide = 384;

  const CheckpointBenchSpec& spec_;
  Comm& comm_;
  std::function<void(const std::string&)> progress_;
  Stream stream_;
  std::vector<int> nodes_ = comm_.nodes();
  std::optional<ScratchDir> scratch_;  // rank 0's
  fs::path checkpoints_, local_, raw_;
  std::optional<BenchTensors> tensors_;
  std::optional<RawBlock> block_;
  PagePool copy_, workspace_;
  std::vector<float> a_, b_, c_;
  Manifest manifest_;
  int64_t step_ = 0;
  double blocked_s_ = 0;  // in request() and finish_staging(), the worst rank's
  std::optional<AsyncSaver> saver_;
};

}  // namespace

FieldList fields(CheckpointBenchSpec& spec) {
  return {
      {.name = "model",
       .value = &spec.model,
       .help = "save its weights and AdamW's moments in f32, dealt out to the ranks"},
      {.name = "size",
       .value = &spec.size,
       .help = "of a rank's tensors, without --model",
       .min = 4096,
       .max = 1e15,
       .is_size = true},
      {.name = "dir", .value = &spec.dir, .help = "a folder on the file system to measure, shared by all ranks"},
      {.name = "tier",
       .value = &spec.tier,
       .help = "where a checkpoint goes; local: a folder of each node, with a copy on another node",
       .choices = {"durable", "local"}},
      {.name = "repeats", .value = &spec.repeats, .help = "of everything, interleaved", .min = 1, .max = 1000},
      {.name = "threads", .value = &spec.threads, .help = "of a rank", .min = 1, .max = 1024},
      {.name = "ranks-per-node",
       .value = &spec.ranks_per_node,
       .help = "treat so many ranks as a node; 0: as they are",
       .min = 0},
      {.name = "comm-timeout", .value = &spec.comm_timeout, .help = "seconds to wait for a rank", .min = 0.001},
      {.name = "loop-s",
       .value = &spec.loop_s,
       .help = "seconds of products that tell their speed without a save",
       .min = 0.05,
       .max = 600},
  };
}

BenchRecord run_checkpoint_bench(const CheckpointBenchJob& job) {
  job.comm.set_timeout(job.spec.comm_timeout);
  Bench bench(job);
  Samples s;
  QuietMeter meter(0);
  const double start = now_s();
  meter.start();
  for (int64_t r = 0; r < job.spec.repeats; ++r) bench.repeat(s);
  meter.stop();
  const JobQuiet quiet = judge_job_quiet(job.comm, meter, now_s() - start);
  const int ranks = job.comm.size();
  const int64_t tensor_bytes = job.comm.all_reduce_value(bench.tensors().bytes(), ReduceOp::sum);
  CheckpointBenchSpec copy = job.spec;
  BenchRecord record =
      new_record("ckpt",
                 fmt::format("{}, {} ranks, {} tier",
                             job.spec.model.empty() ? fmt::format("{} bytes", tensor_bytes) : job.spec.model, ranks,
                             job.spec.tier),
                 fields_json(fields(copy)));
  record.repeats = job.spec.repeats;
  record.cpu_share = quiet.cpu_share;
  record.quiet = quiet.is_quiet;
  add_samples(record, {.name = "blocking_s", .unit = "s"}, s.blocking_s);
  record.metrics.back().limit = *std::min_element(s.memcpy_s.begin(), s.memcpy_s.end());
  add_samples(record, {.name = "memcpy_s", .unit = "s", .better = Better::neither, .kind = MetricKind::fact},
              s.memcpy_s);
  add_samples(record, {.name = "save_s", .unit = "s"}, s.save_s);
  add_samples(record, {.name = "written_s", .unit = "s"}, s.written_s);
  add_rates(record, s.save, ranks);
  add_rates(record, s.raw_write, ranks);
  add_samples(record, {.name = "save_over_raw_write", .better = Better::higher}, s.write_ratio);
  add_rates(record, s.verify, ranks);
  add_rates(record, s.raw_read, ranks);
  if (s.verify_ratio.size() == s.save_s.size())
    add_samples(record, {.name = "verify_over_raw_read", .better = Better::higher}, s.verify_ratio);
  add_samples(record, {.name = "load", .unit = "GB/s", .better = Better::higher}, s.load);
  add_samples(record, {.name = "save_beside_products_s", .unit = "s"}, s.beside_s);
  add_samples(record, {.name = "loop_slowdown", .unit = "%"}, s.slowdown);
  const auto pieces = job.comm.all_reduce_value(static_cast<int64_t>(bench.tensors().pieces().size()), ReduceOp::sum);
  add_samples(record, {.name = "file_bytes", .unit = "bytes", .kind = MetricKind::count},
              {static_cast<double>(s.file_bytes)});
  add_samples(record, {.name = "pieces", .kind = MetricKind::count}, {static_cast<double>(pieces)});
  record.details =
      Json{{"ranks", ranks}, {"tensor_bytes", tensor_bytes}, {"host_memory_per_rank", bench.pool_bytes()}}.dump();
  return record;
}

}  // namespace rw
