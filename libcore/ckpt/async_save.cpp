#include "libcore/ckpt/async_save.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/buddy_copy.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/commit.h"
#include "libcore/ckpt/stale_check.h"
#include "libcore/ckpt/step_dirs.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Uploads read what lies in a file already: a few units are enough to keep the disk busy.
constexpr int64_t kUploadPoolBytes = int64_t{32} << 20;

bool holds_piece(const Manifest& manifest, const std::string& name, const PieceRecord& piece) {
  const auto tensor = std::lower_bound(manifest.tensors.begin(), manifest.tensors.end(), name,
                                       [](const TensorRecord& t, const std::string& n) { return t.info.name < n; });
  if (tensor == manifest.tensors.end() || tensor->info.name != name) return false;
  return std::any_of(tensor->pieces.begin(), tensor->pieces.end(),
                     [&](const PieceRecord& p) { return p.box == piece.box && p.digest == piece.digest; });
}

// The first problem of any rank, with its rank; "" when there is none.
std::string first_problem(Comm& comm, const std::string& mine) {
  const std::vector<std::string> all = comm.gather_text(mine);
  for (size_t r = 0; r < all.size(); ++r)
    if (!all[r].empty()) return fmt::format("rank {}: {}", r, all[r]);
  return "";
}

}  // namespace

struct AsyncSaver::Impl {
  enum class Phase { none, write, exchange };

  AsyncSaveOptions options;
  Comm& comm;
  std::vector<int> nodes, buddy;
  bool leads_node = true;          // commits the node's directory
  std::unique_ptr<Comm> messages;  // of the buddy copies, apart from everybody else's
  ShardSaver saver;
  std::optional<ShardSaver> uploader;

  Phase phase = Phase::none;
  SaveRequest request;  // the pieces' memory is not looked at after staging
  std::string refused;  // why the save could not even begin
  double requested_s = 0, blocking_s = 0, unclaimed_blocking_s = 0;
  double entered_s = 0;  // advance()
  std::vector<ShardRecord> shards;
  std::optional<Manifest> manifest;
  std::vector<std::string> unchanged;
  std::optional<BuddyCopy> copies;
  std::optional<std::string> exchanged;  // this rank's part of the exchange is over: why it failed, or ""

  // The upload: from a committed local step.
  std::optional<Manifest> uploading;
  MappedFile upload_source;
  int64_t newest_local = -1;
  double upload_start_s = 0;

  StaleCheck stale;

  Impl(const AsyncSaveOptions& o, Comm& c) : options(o), comm(c), saver(o.saver) {}

  fs::path file_name() const { return fmt::format("rank-{:05}.h5", comm.rank()); }
  fs::path tier_dir() const { return request.local ? options.local : options.durable; }
  const char* tier() const { return request.local ? "local" : "durable"; }
  bool prepares() const { return request.local ? leads_node : comm.rank() == 0; }

  SaveNews news(SaveNews::Kind kind, const std::string& error = "") const {
    return {.kind = kind, .step = request.step, .tier = tier(), .error = error};
  }
  double blocking_so_far() const { return blocking_s + now_s() - entered_s; }
  void measure(SaveNews& n, double background_s, double blocking) const {
    double seconds[2] = {blocking, background_s};
    comm.all_reduce(seconds, 2, DType::f64, ReduceOp::max);
    n.blocking_s = seconds[0];
    n.background_s = seconds[1];
    for (const ShardRecord& shard : shards) n.bytes += shard.file.bytes;
  }
  // The main thread was busy with the save since then.
  void charge(double since_s) {
    blocking_s += now_s() - since_s;
    unclaimed_blocking_s += now_s() - since_s;
  }
  // Until this rank's part of what is under way is over, but not long: the others wait for its votes.
  void wait_for_own_part() {
    constexpr double kMostS = 0.05, kMessagesS = 0.0005;
    if (phase == Phase::write && refused.empty()) saver.wait(kMostS);
    else if (phase == Phase::exchange && !exchanged)  // messages move when votes() pushes them
      std::this_thread::sleep_for(std::chrono::duration<double>(kMessagesS));
    else if (phase == Phase::none && uploading) uploader->wait(kMostS);
  }
  SaveNews give_up(const std::string& problem) {
    if (prepares()) abandon_step(tier_dir(), request.step);
    phase = Phase::none;
    copies.reset();
    return news(SaveNews::Kind::failed, problem);
  }

  void end_write(std::vector<SaveNews>& out);
  void commit_durable(std::vector<SaveNews>& out);
  void end_exchange(std::vector<SaveNews>& out);
  void commit_local(std::vector<SaveNews>& out);
  void start_upload(std::vector<SaveNews>& out);
  void end_upload(std::vector<SaveNews>& out);
  std::string judge();
  void drop_old_local_steps();
};

// On rank 0 the manifest is compared with the last one; all ranks hear what came of it. Returns why the save is stale,
// or "".
std::string AsyncSaver::Impl::judge() {
  Json verdict = {{"stale", ""}, {"unchanged", Json::array()}};
  if (comm.rank() == 0 && request.must_differ) {
    const Staleness found = stale.compare(*manifest);
    if (found.all_unchanged)
      verdict["stale"] = fmt::format(
          "all {} weight tensors are bit for bit those of the last save although the weights were updated since",
          found.unchanged.size());
    else verdict["unchanged"] = found.unchanged;
  }
  const Json heard = Json::parse(comm.broadcast_text(verdict.dump(), 0));
  unchanged = heard["unchanged"].get<std::vector<std::string>>();
  return heard["stale"].get<std::string>();
}

// Every rank's file is on disk, or the save has failed somewhere.
void AsyncSaver::Impl::end_write(std::vector<SaveNews>& out) {
  if (!refused.empty()) return out.push_back(give_up(refused));
  std::string report;
  const std::string problem = attempt([&] { report = shard_text(saver.take()); });
  // One gather tells every rank of every failure and of every piece; the first character says which it is.
  std::vector<std::string> reports = comm.gather_text(problem.empty() ? "+" + report : "-" + problem);
  for (size_t r = 0; r < reports.size(); ++r) {
    const bool failed = reports[r].starts_with('-');
    reports[r].erase(0, 1);
    if (failed) return out.push_back(give_up(fmt::format("rank {}: {}", r, reports[r])));
  }
  if (request.local) {  // other nodes write manifests too
    request.identity = comm.broadcast_text(request.identity, 0);
    request.state = comm.broadcast_text(request.state, 0);
  }
  shards.clear();
  const std::string broken = attempt([&] {
    for (size_t r = 0; r < reports.size(); ++r) shards.push_back(parse_shard(reports[r], "rank " + std::to_string(r)));
    manifest = make_manifest(request.step, request.identity, request.state, shards);
  });
  if (!broken.empty()) return out.push_back(give_up(broken));
  // A manifest is the same, byte for byte, on all nodes: they recognise each other's directories by it.
  manifest->created = comm.broadcast_text(manifest->created, 0);
  if (const std::string why = judge(); !why.empty()) {
    SaveNews n = give_up(why);
    n.kind = SaveNews::Kind::stale;
    return out.push_back(n);
  }
  SaveNews written = news(SaveNews::Kind::written);
  measure(written, saver.times().background_s, blocking_so_far());
  out.push_back(written);
  if (!request.local) return commit_durable(out);
  if (messages == nullptr) return commit_local(out);
  const std::string no_room =
      attempt([&] { copies.emplace(unfinished_path(options.local, request.step), shards, buddy, *messages); });
  if (const std::string first = first_problem(comm, no_room); !first.empty()) return out.push_back(give_up(first));
  copies->start();
  exchanged.reset();
  phase = Phase::exchange;
}

void AsyncSaver::Impl::commit_durable(std::vector<SaveNews>& out) {
  const std::string problem = attempt([&] {
    if (comm.rank() == 0) commit_step(options.durable, *manifest);
  });
  if (const std::string first = first_problem(comm, problem); !first.empty()) return out.push_back(give_up(first));
  phase = Phase::none;
  stale.remember(*manifest);
  SaveNews n = news(SaveNews::Kind::committed);
  n.unchanged = unchanged;
  measure(n, saver.times().background_s, blocking_so_far());
  out.push_back(n);
}

void AsyncSaver::Impl::end_exchange(std::vector<SaveNews>& out) {
  copies.reset();
  if (const std::string first = first_problem(comm, *exchanged); !first.empty()) return out.push_back(give_up(first));
  commit_local(out);
}

void AsyncSaver::Impl::commit_local(std::vector<SaveNews>& out) {
  const std::string problem = attempt([&] {
    if (leads_node) commit_step(options.local, *manifest);
  });
  if (const std::string first = first_problem(comm, problem); !first.empty()) return out.push_back(give_up(first));
  phase = Phase::none;
  newest_local = manifest->step;
  stale.remember(*manifest);
  SaveNews n = news(SaveNews::Kind::committed);
  n.unchanged = unchanged;
  measure(n, now_s() - requested_s, blocking_so_far());
  out.push_back(n);
  if (request.durable) start_upload(out);
  drop_old_local_steps();
}

// Only the newest is worth its memory, and the one that is being uploaded.
void AsyncSaver::Impl::drop_old_local_steps() {
  if (!leads_node || newest_local < 0) return;
  attempt([&] {
    for (const auto& [step, dir] : step_directories(options.local))
      if (step != newest_local && (!uploading || step != uploading->step)) remove_step(dir);
  });
}

void AsyncSaver::Impl::start_upload(std::vector<SaveNews>& out) {
  SaveNews n = {.kind = SaveNews::Kind::skipped, .step = manifest->step, .tier = "durable"};
  if (uploading) {
    n.error = fmt::format("the upload of step {} is under way", uploading->step);
    return out.push_back(n);
  }
  const fs::path mine = options.local / step_name(manifest->step) / file_name();
  const std::string problem = attempt([&] {
    if (comm.rank() == 0) prepare_step(options.durable, manifest->step);
    upload_source = MappedFile(mine);
  });
  if (const std::string first = first_problem(comm, problem); !first.empty()) {
    n.kind = SaveNews::Kind::failed;
    n.error = first;
    return out.push_back(n);
  }
  // The same pieces, from the local file's pages: the file comes out the same, digests included.
  std::vector<TensorPiece> pieces = std::move(request.pieces);
  std::map<std::string, size_t> next;
  const ShardRecord& shard = shards[static_cast<size_t>(comm.rank())];
  std::map<std::string, const TensorRecord*> records;
  for (const TensorRecord& t : shard.tensors) records[t.info.name] = &t;
  for (TensorPiece& piece : pieces) {
    if (piece.box.size() == 0) continue;
    const PieceRecord& record = records.at(piece.name)->pieces[next[piece.name]++];
    CHECK(record.box == piece.box, "piece of %s", piece.name.c_str());
    piece.data = upload_source.data() + record.at;
  }
  uploading = manifest;
  upload_start_s = now_s();
  uploader->begin(pieces, unfinished_path(options.durable, manifest->step) / file_name(), ShardSaver::Cache::bypass);
}

void AsyncSaver::Impl::end_upload(std::vector<SaveNews>& out) {
  const Manifest what = *std::exchange(uploading, std::nullopt);
  SaveNews n = {.kind = SaveNews::Kind::committed, .step = what.step, .tier = "durable"};
  std::string problem = attempt([&] {
    const ShardRecord shard = uploader->take();
    const FileRecord& saved = what.files[static_cast<size_t>(comm.rank())];
    if (shard.file.name != saved.name || shard.file.bytes != saved.bytes || shard.file.rest_digest != saved.rest_digest)
      fail(ErrorKind::runtime, "{}: the uploaded file is laid out in another way than the local one", saved.name);
    for (const TensorRecord& tensor : shard.tensors)
      for (const PieceRecord& piece : tensor.pieces)
        if (!holds_piece(what, tensor.info.name, piece))
          fail(ErrorKind::runtime, "{}: tensor {} {} is no longer what was saved: the local copy is damaged",
               (options.local / step_name(what.step) / file_name()).string(), tensor.info.name, box_text(piece.box));
  });
  upload_source = MappedFile();
  drop_old_local_steps();
  problem = first_problem(comm, problem);
  if (problem.empty())
    problem = comm.broadcast_text(attempt([&] {
                                    if (comm.rank() == 0) commit_step(options.durable, what);
                                  }),
                                  0);
  if (!problem.empty()) {
    if (comm.rank() == 0) abandon_step(options.durable, what.step);
    n.kind = SaveNews::Kind::failed;
    n.error = problem;
    return out.push_back(n);
  }
  measure(n, now_s() - upload_start_s, 0);
  n.bytes = 0;
  for (const FileRecord& file : what.files) n.bytes += file.bytes;
  out.push_back(n);
}

AsyncSaver::AsyncSaver(const AsyncSaveOptions& options, Comm& comm) : impl_(std::make_unique<Impl>(options, comm)) {
  Impl& m = *impl_;
  m.nodes = comm.nodes();
  m.buddy = buddies(m.nodes);
  if (options.local.empty()) return;
  const auto me = static_cast<size_t>(comm.rank());
  m.leads_node = std::find(m.nodes.begin(), m.nodes.end(), m.nodes[me]) - m.nodes.begin() == comm.rank();
  if (m.buddy[me] >= 0) {
    m.messages = comm.split(0, comm.rank());
    m.messages->set_timeout(comm.timeout_s());
  }
  SaverOptions upload = options.saver;
  upload.memory_bytes = kUploadPoolBytes;
  upload.copy = nullptr;  // what it reads lies in a file
  m.uploader.emplace(upload);
}
AsyncSaver::~AsyncSaver() = default;

void AsyncSaver::prepare(const std::vector<TensorPiece>& pieces) { impl_->saver.prepare(pieces); }

bool AsyncSaver::request(SaveRequest request) {
  Impl& m = *impl_;
  if (saving()) return false;
  const double start = now_s();
  m.request = std::move(request);
  m.requested_s = start;
  m.blocking_s = 0;
  const std::string problem = attempt([&] {
    if (m.prepares()) prepare_step(m.tier_dir(), m.request.step);
  });
  m.refused = first_problem(m.comm, problem);
  if (m.refused.empty())
    m.saver.begin(m.request.pieces, unfinished_path(m.tier_dir(), m.request.step) / m.file_name(),
                  m.request.local ? ShardSaver::Cache::keep : ShardSaver::Cache::bypass);
  m.phase = Impl::Phase::write;
  m.charge(start);
  return true;
}

void AsyncSaver::finish_staging() {
  Impl& m = *impl_;
  if (m.phase != Impl::Phase::write) return;
  const double start = now_s();
  if (m.refused.empty()) m.saver.finish_staging();
  m.charge(start);
}

SaveVotes AsyncSaver::votes() {
  Impl& m = *impl_;
  SaveVotes v{};
  const auto ended = [](SaveState s) { return s == SaveState::written || s == SaveState::failed; };
  if (m.phase == Impl::Phase::write) {
    v[0] = !m.refused.empty() || ended(m.saver.state());
  } else if (m.phase == Impl::Phase::exchange) {
    if (!m.exchanged) {
      bool done = false;
      const std::string problem = attempt([&] { done = m.copies->done(); });
      if (done || !problem.empty()) m.exchanged = problem;
      else m.copies->fail_if_stuck();
    }
    v[0] = m.exchanged.has_value();
  }
  if (m.uploading) v[1] = ended(m.uploader->state());
  return v;
}

std::vector<SaveNews> AsyncSaver::advance(const SaveVotes& sums) {
  Impl& m = *impl_;
  m.entered_s = now_s();
  std::vector<SaveNews> out;
  // The upload first: it makes room for the next.
  if (m.uploading && sums[1] == m.comm.size()) m.end_upload(out);
  if (m.phase == Impl::Phase::write && sums[0] == m.comm.size()) m.end_write(out);
  else if (m.phase == Impl::Phase::exchange && sums[0] == m.comm.size()) m.end_exchange(out);
  m.charge(m.entered_s);
  return out;
}

std::vector<SaveNews> AsyncSaver::settle(const std::function<void(double)>& waiting) {
  std::vector<SaveNews> all;
  const double start = now_s();
  double said = start;
  finish_staging();
  while (!idle()) {
    SaveVotes v = votes();
    impl_->comm.all_reduce(v.data(), static_cast<int64_t>(v.size()), DType::i64, ReduceOp::sum);
    const std::vector<SaveNews> some = advance(v);
    all.insert(all.end(), some.begin(), some.end());
    if (!some.empty() || idle()) continue;
    // Short sleeps at first: what is under way may be small.
    const double now = now_s();
    impl_->wait_for_own_part();
    impl_->charge(now);
    if (waiting && now_s() - said >= 1) {
      said = now_s();
      waiting(said - start);
    }
  }
  return all;
}

bool AsyncSaver::saving() const { return impl_->phase != Impl::Phase::none; }
bool AsyncSaver::idle() const { return !saving() && !impl_->uploading; }
double AsyncSaver::take_blocking_s() { return std::exchange(impl_->unclaimed_blocking_s, 0.0); }
int64_t AsyncSaver::pool_bytes() const {
  return impl_->saver.pool_bytes() + (impl_->uploader ? impl_->uploader->pool_bytes() : 0);
}
void AsyncSaver::compare_with(const Manifest& manifest) { impl_->stale.remember(manifest); }

}  // namespace rw
