#include "libcore/ckpt/shard_saver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/direct_file.h"
#include "libcore/base/error.h"
#include "libcore/base/page_pool.h"
#include "libcore/ckpt/shard_image.h"

namespace rw {

namespace {

constexpr int64_t kPage = DirectFile::kAlignBytes;
constexpr int64_t kMaxUnitBytes = int64_t{8} << 20, kMinUnitBytes = int64_t{64} << 10;  // one write each
constexpr int64_t kFewUnits = 4;                  // being copied, digested, written, and one in between
constexpr int64_t kAhead = 2;                     // units digested before copying goes on: one in writing, the next
constexpr int64_t kPartBytes = int64_t{1} << 20;  // what a thread copies at a time

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What is written at a time under a ceiling: some fifty milliseconds' worth.
int64_t chunk_bytes(double bytes_per_s, int64_t unit_bytes) {
  const double wanted = std::min(bytes_per_s / 20, static_cast<double>(unit_bytes));
  return std::max(kMinUnitBytes, static_cast<int64_t>(wanted) / kPage * kPage);
}

// How an image passes through the pool: unit u of the file lies in slot u % slots.
struct Plan {
  int64_t bytes = 0, unit_bytes = 0, units = 0, slots = 0;
  int64_t part_bytes = 0, parts_per_unit = 0, parts = 0;

  Plan() = default;
  Plan(int64_t image_bytes, int64_t memory_bytes) : bytes(image_bytes) {
    unit_bytes = kMaxUnitBytes;
    if (memory_bytes > 0) {
      unit_bytes = std::clamp(memory_bytes / kFewUnits / kPage * kPage, kMinUnitBytes, kMaxUnitBytes);
    }
    unit_bytes = std::min(unit_bytes, ceil_div(bytes, kPage) * kPage);
    units = ceil_div(bytes, unit_bytes);
    slots = memory_bytes > 0 ? std::min(units, std::max(kFewUnits, memory_bytes / unit_bytes)) : units;
    part_bytes = std::min(kPartBytes, unit_bytes);
    parts_per_unit = ceil_div(unit_bytes, part_bytes);
    parts = (units - 1) * parts_per_unit + ceil_div(unit_end(units - 1) - unit_begin(units - 1), part_bytes);
  }
  int64_t unit_begin(int64_t unit) const { return unit * unit_bytes; }
  int64_t unit_end(int64_t unit) const { return std::min(bytes, (unit + 1) * unit_bytes); }
  int64_t part_begin(int64_t part) const {
    return unit_begin(part / parts_per_unit) + part % parts_per_unit * part_bytes;
  }
  int64_t part_end(int64_t part) const {
    return std::min(part_begin(part) + part_bytes, unit_end(part / parts_per_unit));
  }
  int64_t parts_of(int64_t unit) const { return std::min(parts_per_unit, parts - unit * parts_per_unit); }
  int64_t pool_bytes() const { return slots * unit_bytes; }
  int64_t in_pool(int64_t at) const { return at / unit_bytes % slots * unit_bytes + at % unit_bytes; }
};

}  // namespace

// Two threads of its own: the stager copies and digests, the writer writes, so that the disk and a core work at the
// same time. Everything below `mutex` is guarded by it; a slot's memory and `digests` belong to whom the counters say.
struct ShardSaver::Impl {
  explicit Impl(const SaverOptions& o) : options(o) {
    stager = std::thread([this] { serve(&Impl::stage_and_digest); });
    writer = std::thread([this] { serve(&Impl::write_file); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
      wake_all();
    }
    stager.join();
    writer.join();
  }

  const SaverOptions options;
  std::thread stager, writer;

  mutable std::mutex mutex;
  std::condition_variable stager_wakes, writer_wakes, caller_wakes;
  bool stop = false;
  bool preparing = false;
  SaveState state = SaveState::idle;
  int64_t saves = 0;    // begun so far
  int own_at_work = 0;  // of the two threads, on the save under way
  std::string error;    // the first
  double begun_s = 0;
  SaveTimes times;

  std::filesystem::path file;
  FileCache cache = FileCache::bypass;
  std::unique_ptr<ShardImage> image;  // kept from save to save
  PagePool pool;
  std::unique_ptr<ShardDigests> digests;
  Plan plan;
  bool planned = false;               // image, pool and plan are ready
  int64_t claimed = 0;                // parts that someone has begun to copy
  int copying = 0;                    // threads that read the pieces at the moment
  int callers = 0;                    // the caller's threads that do not wait for room
  std::vector<int64_t> parts_left;    // of each unit, to be copied
  int64_t digested = 0, written = 0;  // units

  void wake_all() {
    stager_wakes.notify_all();
    writer_wakes.notify_all();
    caller_wakes.notify_all();
  }
  bool ended() const { return stop || !error.empty(); }
  bool all_claimed() const { return planned && claimed == plan.parts; }
  bool has_room() const {
    return planned && claimed < plan.parts && claimed / plan.parts_per_unit < written + plan.slots;
  }
  char* memory_at(int64_t at) const { return pool.data() + plan.in_pool(at); }

  using Lock = std::unique_lock<std::mutex>;

  // A thread's life: its share of each save.
  void serve(void (Impl::*share)(Lock&)) {
    Lock lock(mutex);
    const bool is_stager = share == &Impl::stage_and_digest;
    std::condition_variable& wakes = is_stager ? stager_wakes : writer_wakes;
    for (int64_t seen = 0;;) {
      wakes.wait(lock, [&] { return stop || saves != seen || (is_stager && preparing); });
      if (stop) return;
      if (saves == seen) {
        prepare(lock);
        continue;
      }
      seen = saves;
      try {
        (this->*share)(lock);
      } catch (const std::exception& e) {
        if (!lock.owns_lock()) lock.lock();
        if (error.empty()) error = is_stager ? fmt::format("{}: {}", file.string(), e.what()) : e.what();
      }
      if (--own_at_work == 0) {
        times.background_s = now_s() - begun_s;
        state = error.empty() ? SaveState::written : SaveState::failed;
      }
      wake_all();
    }
  }

  // Needs room.
  void copy_part(Lock& lock) {
    const int64_t part = claimed++;
    ++copying;
    lock.unlock();
    const int64_t begin = plan.part_begin(part);
    std::string problem;  // of a device whose memory is read
    try {
      image->fill(begin, plan.part_end(part), memory_at(begin));
    } catch (const std::exception& e) {
      problem = fmt::format("{}: {}", file.string(), e.what());
    }
    lock.lock();
    --copying;
    if (!problem.empty()) {
      if (error.empty()) error = problem;
      wake_all();
    }
    --parts_left[static_cast<size_t>(part / plan.parts_per_unit)];
    if (copying == 0 && (all_claimed() || ended())) {
      if (!ended()) state = SaveState::writing;
      caller_wakes.notify_all();
    }
  }

  void digest_unit(Lock& lock) {
    const int64_t begin = plan.unit_begin(digested), end = plan.unit_end(digested);
    lock.unlock();
    digests->update(memory_at(begin), end - begin);
    lock.lock();
    ++digested;
    writer_wakes.notify_one();
  }

  // The layout, and a pool for it.
  void make_plan(Lock& lock) {
    lock.unlock();
    if (!image->laid_out()) image->lay_out();
    const Plan made(image->bytes(), options.memory_bytes);
    lock.lock();
    pool.need(made.pool_bytes());
    plan = made;
  }

  void prepare(Lock& lock) {
    try {
      make_plan(lock);
      for (int64_t at = 0; at < plan.pool_bytes() && !stop; at += kPartBytes) {
        lock.unlock();
        const int64_t end = std::min(plan.pool_bytes(), at + kPartBytes);
        for (int64_t page = at; page < end; page += kPage) pool.data()[page] = 0;
        lock.lock();
      }
    } catch (const std::exception&) {  // the save meets the same, and reports it
      if (!lock.owns_lock()) lock.lock();
    }
    preparing = false;
    caller_wakes.notify_all();
  }

  void stage_and_digest(Lock& lock) {
    make_plan(lock);
    digests = std::make_unique<ShardDigests>(image->digests());
    times.bytes = plan.bytes;
    parts_left.clear();
    for (int64_t u = 0; u < plan.units; ++u) parts_left.push_back(plan.parts_of(u));
    planned = true;
    caller_wakes.notify_all();
    writer_wakes.notify_one();

    // Whoever waits in finish_staging() has the cores and the memory to itself. Otherwise the disk is kept busy first.
    const auto unit_staged = [&] { return parts_left[static_cast<size_t>(digested)] == 0; };
    while (!ended() && digested < plan.units) {
      if (callers == 0 && unit_staged() && (digested < written + kAhead || !has_room())) digest_unit(lock);
      else if (callers == 0 && has_room()) copy_part(lock);
      else stager_wakes.wait(lock, [&] { return ended() || (callers == 0 && (unit_staged() || has_room())); });
    }
  }

  // Writes a unit, no faster than the ceiling; false when the save has ended meanwhile.
  bool write_unit(Lock& lock, DirectFile& out, double& due) {
    const double rate = options.bytes_per_s;
    const int64_t chunk = rate > 0 ? chunk_bytes(rate, plan.unit_bytes) : plan.unit_bytes;
    const int64_t end = plan.unit_end(written);
    for (int64_t at = plan.unit_begin(written); at < end; at += chunk) {
      const double wait_s = std::min(due - now_s(), 1e6);
      if (wait_s > 0) writer_wakes.wait_for(lock, std::chrono::duration<double>(wait_s), [&] { return ended(); });
      if (ended()) return false;
      lock.unlock();
      const int64_t n = std::min(chunk, end - at);
      if (rate > 0) due = now_s() + static_cast<double>(n) / rate;
      out.write(memory_at(at), n, at);
      lock.lock();
    }
    return true;
  }

  void write_file(Lock& lock) {
    writer_wakes.wait(lock, [&] { return ended() || planned; });
    if (ended()) return;
    lock.unlock();
    DirectFile out(file, cache);
    out.reserve(plan.bytes);
    lock.lock();
    double due = 0;
    while (written < plan.units) {
      writer_wakes.wait(lock, [&] { return ended() || digested > written; });
      if (!write_unit(lock, out, due)) return;
      ++written;
      stager_wakes.notify_one();
      caller_wakes.notify_all();
    }
    lock.unlock();
    out.sync_and_close();
    lock.lock();
  }

  void take_pieces(Lock& lock, const std::vector<TensorPiece>& pieces) {
    CHECK(state == SaveState::idle, "new pieces while the save of %s is under way", file.c_str());
    caller_wakes.wait(lock, [&] { return !preparing; });
    // Both threads are parked: what is theirs at other times may be changed.
    if (image != nullptr && image->fits(pieces)) image->set_data(pieces);
    else image = std::make_unique<ShardImage>(pieces, options.copy);
  }

  // One of the caller's threads, until nothing is left to be begun.
  void stage_as_caller() {
    Lock lock(mutex);
    ++callers;
    const auto leave = [&] {
      if (--callers == 0) stager_wakes.notify_one();
    };
    while (!ended() && !all_claimed()) {
      if (has_room()) {
        copy_part(lock);
        continue;
      }
      leave();
      caller_wakes.wait(lock, [&] { return ended() || all_claimed() || has_room(); });
      ++callers;
    }
    leave();
  }
};

ShardSaver::ShardSaver(const SaverOptions& options) : impl_(std::make_unique<Impl>(options)) {
  CHECK(options.memory_bytes >= 0 && options.bytes_per_s >= 0 && options.threads >= 1,
        "saver options: memory %lld, rate %g, threads %d", static_cast<long long>(options.memory_bytes),
        options.bytes_per_s, options.threads);
}
ShardSaver::~ShardSaver() = default;

void ShardSaver::prepare(const std::vector<TensorPiece>& pieces) {
  Impl& s = *impl_;
  Impl::Lock lock(s.mutex);
  s.take_pieces(lock, pieces);
  s.preparing = true;
  s.stager_wakes.notify_one();
}

void ShardSaver::begin(const std::vector<TensorPiece>& pieces, const std::filesystem::path& file, Cache cache) {
  const double start_s = now_s();
  Impl& s = *impl_;
  Impl::Lock lock(s.mutex);
  s.take_pieces(lock, pieces);
  s.file = file;
  s.cache = cache == Cache::bypass ? FileCache::bypass : FileCache::keep;
  s.planned = false;
  s.claimed = s.digested = s.written = 0;
  s.error.clear();
  s.begun_s = start_s;
  s.times = {};
  s.state = SaveState::staging;
  s.own_at_work = 2;
  ++s.saves;
  s.wake_all();
  s.times.begin_s = now_s() - start_s;
}

void ShardSaver::finish_staging() {
  const double start_s = now_s();
  Impl& s = *impl_;
  if (state() != SaveState::staging) return;
  if (s.options.threads == 1) {
    s.stage_as_caller();
  } else {
#pragma omp parallel num_threads(s.options.threads)
    s.stage_as_caller();
  }
  Impl::Lock lock(s.mutex);
  s.caller_wakes.wait(lock, [&] { return s.copying == 0; });
  s.times.finish_s = now_s() - start_s;
}

SaveState ShardSaver::state() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->state;
}

bool ShardSaver::wait(double seconds) {
  Impl& s = *impl_;
  Impl::Lock lock(s.mutex);
  const auto done = [&] { return s.state == SaveState::written || s.state == SaveState::failed; };
  if (s.state != SaveState::idle)
    s.caller_wakes.wait_for(lock, std::chrono::duration<double>(std::min(seconds, 1e6)), done);
  return done();
}

ShardRecord ShardSaver::take() {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  CHECK(s.state == SaveState::written || s.state == SaveState::failed, "take() of a save that is not done");
  const bool failed = std::exchange(s.state, SaveState::idle) == SaveState::failed;
  if (failed) fail(ErrorKind::runtime, "{}", s.error);
  return s.image->record(s.file.filename().string(), *s.digests);
}

SaveTimes ShardSaver::times() const {
  const std::lock_guard lock(impl_->mutex);
  SaveTimes times = impl_->times;
  if (impl_->own_at_work > 0) times.background_s = now_s() - impl_->begun_s;
  return times;
}

int64_t ShardSaver::pool_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.bytes();
}

}  // namespace rw
