#include "libcore/serve/scheduler.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "libcore/base/error.h"
#include "libcore/serve/step_log.h"
#include "tests/serve/null_model.h"

using namespace rw;
using test::NullModel;

namespace {

struct Wish {
  std::vector<int32_t> prompt;
  int64_t max_tokens;
  std::string salt = {};
  int64_t priority = 0;
  bool cache = true;
  int64_t cancel_after = -1;  // drawn tokens; -1: never
};

// Runs wishes through a scheduler over the null model. `arrivals(step)`: how many of them arrive before a step.
struct World {
  explicit World(const SchedulerSpec& spec, StepLog log = {})
      : spec(spec), scheduler(spec), model(spec.n_pages, spec.block_tokens), log(std::move(log)) {}

  void add(const Wish& w) {
    const SequenceId id = static_cast<SequenceId>(wishes.size());
    wishes.push_back(w);
    outputs.emplace_back();
    Arrival a;
    a.id = id;
    a.prompt = w.prompt;
    a.max_tokens = w.max_tokens;
    a.cache = w.cache;
    a.salt = w.salt;
    a.priority = w.priority;
    log.arrival(a);
    scheduler.add(std::move(a));
    ++open;
  }
  void end(SequenceId id) {
    log.end(id);
    scheduler.end(id);
    --open;
  }
  bool step() {
    if (!scheduler.next(plan)) return false;
    log.plan(plan);
    CHECK(plan.n_tokens() <= spec.max_batch_tokens);
    CHECK(static_cast<int64_t>(plan.rows.size()) <= spec.max_seqs);
    const StepOutput result = model.run(plan);
    StepOutcome outcome{.seconds = seconds(plan), .drawn = {}};
    for (const SequenceResult& r : result.sequences)
      if (r.sampled) outcome.drawn.emplace_back(r.id, r.token.id);
    log.outcome(outcome);
    scheduler.done(outcome);
    ++steps;
    most_running = std::max(most_running, scheduler.stats().running);
    for (const SequenceResult& r : result.sequences) {
      const Wish& w = wishes[static_cast<size_t>(r.id)];
      std::vector<int32_t>& out = outputs[static_cast<size_t>(r.id)];
      if (r.sampled) out.push_back(r.token.id);
      const auto n = static_cast<int64_t>(out.size());
      const bool scored = w.max_tokens == 0 && scheduler.view(r.id).fed == static_cast<int64_t>(w.prompt.size());
      most_preemptions = std::max(most_preemptions, scheduler.view(r.id).preemptions);
      if (n == w.max_tokens ? n > 0 || scored : w.cancel_after >= 0 && n >= w.cancel_after && n > 0) end(r.id);
    }
    return true;
  }
  static double seconds(const StepPlan& plan) { return 1e-3 + 1e-5 * static_cast<double>(plan.n_tokens()); }
  void check_outputs() const {
    for (size_t i = 0; i < wishes.size(); ++i) {
      const auto n = static_cast<int64_t>(outputs[i].size());
      CHECK(outputs[i] == NullModel::alone(wishes[i].prompt, n));
      if (wishes[i].cancel_after < 0) CHECK(n == wishes[i].max_tokens);
    }
    CHECK(model.n_faults == 0);
  }
  // Nothing runs: every page is free or merely cached.
  void check_empty() {
    while (scheduler.next(plan)) model.run(plan);
    const SchedulerStats s = scheduler.stats();
    CHECK(s.running == 0);
    CHECK(s.waiting == 0);
    CHECK(s.backlog_tokens == 0);
    CHECK(s.free_pages + s.evictable_pages == spec.n_pages);
    CHECK(s.evictable_pages == s.cached_pages);
    CHECK(model.n_sequences() == 0);
  }

  SchedulerSpec spec;
  Scheduler scheduler;
  NullModel model;
  StepLog log;
  StepPlan plan;
  std::vector<Wish> wishes;
  std::vector<std::vector<int32_t>> outputs;
  int64_t open = 0, steps = 0, most_running = 0, most_preemptions = 0;
};

std::vector<int32_t> tokens(std::mt19937& rng, int64_t n, int alphabet) {
  std::vector<int32_t> t(static_cast<size_t>(n));
  for (int32_t& x : t) x = static_cast<int32_t>(rng() % static_cast<unsigned>(alphabet));
  return t;
}

}  // namespace

TEST_CASE("whatever happens, every sequence reads its own context and goes on as if it were alone") {
  struct Case {
    SchedulerSpec spec;
    int64_t longest_prompt, longest_output;
    int alphabet;  // small: many shared prefixes
  };
  const Case cases[] = {
      {{.n_pages = 400, .block_tokens = 4, .max_seqs = 16, .max_batch_tokens = 64}, 60, 40, 2},
      {{.n_pages = 31, .block_tokens = 4, .max_seqs = 8, .max_batch_tokens = 17}, 50, 50, 2},
      {{.n_pages = 31, .block_tokens = 4, .max_seqs = 8, .max_batch_tokens = 17, .max_preemptions = 0}, 50, 50, 50},
      {{.n_pages = 40, .block_tokens = 3, .max_seqs = 7, .max_batch_tokens = 7, .prefix_cache = false}, 40, 40, 2},
      {{.n_pages = 128, .block_tokens = 1, .max_seqs = 5, .max_batch_tokens = 9, .itl_budget_s = 0.00107}, 40, 30, 2},
      {{.n_pages = 9, .block_tokens = 16, .max_seqs = 3, .max_batch_tokens = 32, .max_preemptions = 1}, 70, 70, 3},
  };
  for (size_t c = 0; c < std::size(cases); ++c) {
    CAPTURE(c);
    const Case& x = cases[c];
    std::mt19937 rng(static_cast<unsigned>(c + 1));
    World world(x.spec);
    int64_t left = 600;
    while (left > 0 || world.open > 0) {
      for (int64_t n = static_cast<int64_t>(rng() % 3); n > 0 && left > 0 && world.open < 40; --n, --left) {
        Wish w{.prompt = tokens(rng, 1 + static_cast<int64_t>(rng()) % x.longest_prompt, x.alphabet),
               .max_tokens = static_cast<int64_t>(rng()) % (x.longest_output + 1),
               .salt = rng() % 4 == 0 ? "b" : "",
               .priority = static_cast<int64_t>(rng() % 3),
               .cache = rng() % 5 != 0,
               .cancel_after = rng() % 6 == 0 ? static_cast<int64_t>(rng() % 20) : -1};
        if (w.max_tokens == 0) w.cancel_after = -1;
        world.add(w);
      }
      if (world.open > 0 && rng() % 50 == 0) {  // cancelled from outside, waiting or running
        const auto id = static_cast<size_t>(rng() % world.wishes.size());
        Wish& w = world.wishes[id];
        const auto n = static_cast<int64_t>(world.outputs[id].size());
        if (n < w.max_tokens && w.cancel_after < 0) {
          w.cancel_after = n;
          world.end(static_cast<SequenceId>(id));
        }
      }
      const bool stepped = world.step();
      REQUIRE((stepped || world.open == 0 || left > 0));
    }
    world.check_outputs();
    world.check_empty();
    CHECK(world.most_preemptions <= x.spec.max_preemptions);
    if (c == 1) CHECK(world.scheduler.stats().preemptions > 0);
    if (x.spec.prefix_cache && x.alphabet == 2) CHECK(world.scheduler.stats().prefix_hits > 0);
    if (!x.spec.prefix_cache) CHECK(world.scheduler.stats().cached_pages == 0);
  }
}

TEST_CASE("a pool of 1.2 requests serves fifty of them, each preempted at most so often") {
  World world({.n_pages = 24, .block_tokens = 4, .max_seqs = 8, .max_batch_tokens = 32, .prefix_cache = false});
  std::mt19937 rng(3);
  for (int i = 0; i < 50; ++i) world.add({.prompt = tokens(rng, 40, 90), .max_tokens = 40});
  int64_t turns = 0;
  while (world.open > 0) {
    REQUIRE(world.step());
    REQUIRE(++turns < 20000);
  }
  world.check_outputs();
  world.check_empty();
  CHECK(world.most_preemptions <= 3);
}

TEST_CASE("a sequence whose block another has cached takes no page that is reserved") {
  // Few prompts, again and again, the same continuations: blocks that are in the tree already, in pools with hardly any
  // room.
  for (const int64_t max_preemptions : {0, 1, 3})
    for (unsigned seed = 0; seed < 60; ++seed) {
      CAPTURE(max_preemptions);
      CAPTURE(seed);
      std::mt19937 rng(seed);
      World world({.n_pages = 10 + static_cast<int64_t>(rng() % 6),
                   .block_tokens = 4,
                   .max_seqs = 1 + static_cast<int64_t>(rng() % 6),
                   .max_batch_tokens = 8 + static_cast<int64_t>(rng() % 20),
                   .max_preemptions = max_preemptions});
      int64_t left = 60, turns = 0;
      while (left > 0 || world.open > 0) {
        for (; left > 0 && world.open < 8; --left) {
          std::mt19937 prompt(static_cast<unsigned>(rng() % 3));
          world.add({.prompt = tokens(prompt, 4 * (1 + static_cast<int64_t>(rng() % 3)), 90),
                     .max_tokens = 1 + static_cast<int64_t>(rng() % 27)});
        }
        REQUIRE((world.step() || left > 0));
        REQUIRE(++turns < 20000);
      }
      world.check_outputs();
      world.check_empty();
      CHECK(world.most_preemptions <= max_preemptions);
    }
}

TEST_CASE("requests with one uncached prefix compute it once") {
  World world({.n_pages = 400, .block_tokens = 4, .max_seqs = 32, .max_batch_tokens = 24});
  std::mt19937 rng(5);
  const std::vector<int32_t> prefix = tokens(rng, 100, 90);
  for (int i = 0; i < 20; ++i) {
    std::vector<int32_t> prompt = prefix;
    prompt.push_back(i);
    world.add({.prompt = std::move(prompt), .max_tokens = 3});
  }
  REQUIRE(world.step());
  CHECK(world.scheduler.stats().running == 1);
  while (world.open > 0) REQUIRE(world.step());
  world.check_outputs();
  // The prefix once, then for each its own last token and two drawn ones.
  CHECK(world.model.n_tokens == 100 + 20 + 20 * 2);
  CHECK(world.scheduler.stats().prefix_hits == 19 * 100);
  // Another salt shares nothing.
  const int64_t before = world.model.n_tokens;
  world.add({.prompt = prefix, .max_tokens = 1, .salt = "other"});
  while (world.open > 0) REQUIRE(world.step());
  CHECK(world.model.n_tokens - before == 100);
}

TEST_CASE("who waits for a prefix goes on when the one that computes it is cancelled") {
  World world({.n_pages = 100, .block_tokens = 4, .max_seqs = 4, .max_batch_tokens = 8});
  std::mt19937 rng(6);
  const std::vector<int32_t> prompt = tokens(rng, 50, 90);
  world.add({.prompt = prompt, .max_tokens = 5, .cancel_after = 0});
  world.add({.prompt = prompt, .max_tokens = 5});
  REQUIRE(world.step());
  CHECK(world.scheduler.stats().running == 1);
  world.end(0);
  while (world.open > 0) REQUIRE(world.step());
  CHECK(world.outputs[1] == NullModel::alone(prompt, 5));
  world.check_empty();
}

TEST_CASE("running streams keep their rhythm: a budget sizes the chunks") {
  // A token costs 10 us and a step 1 ms: 1.5 ms leave about 35 tokens beside four decodes, with the margin.
  for (const double budget : {0.0, 0.0015}) {
    World world({.n_pages = 1000, .block_tokens = 4, .max_seqs = 8, .max_batch_tokens = 512, .itl_budget_s = budget});
    std::mt19937 rng(7);
    for (int i = 0; i < 4; ++i) world.add({.prompt = tokens(rng, 8, 90), .max_tokens = 400});
    for (int i = 0; i < 20; ++i) REQUIRE(world.step());
    world.add({.prompt = tokens(rng, 2000, 90), .max_tokens = 1});
    double worst = 0;
    int64_t chunks = 0;
    while (world.outputs[4].empty()) {
      REQUIRE(world.step());
      worst = std::max(worst, World::seconds(world.plan));
      ++chunks;
      CHECK(world.plan.rows.size() >= 4);  // all four streams are in every step
    }
    if (budget == 0) {
      CHECK(chunks == 4);
    } else {
      CHECK(worst <= budget);
      CHECK(chunks < 100);
    }
  }
}

TEST_CASE("priorities and arrival decide who goes first") {
  World world({.n_pages = 100, .block_tokens = 4, .max_seqs = 1, .max_batch_tokens = 64, .prefix_cache = false});
  for (const int64_t priority : {5, 1, 1, -3}) world.add({.prompt = {1, 2, 3}, .max_tokens = 1, .priority = priority});
  std::vector<SequenceId> order;
  while (world.open > 0) {
    REQUIRE(world.step());
    for (const SequenceRows& r : world.plan.rows) order.push_back(r.id);
  }
  CHECK(order == std::vector<SequenceId>{3, 1, 2, 0});
}

TEST_CASE("kept prefixes outlive eviction until they are released, and count their hits") {
  World world({.n_pages = 20, .block_tokens = 4, .max_seqs = 2, .max_batch_tokens = 64});
  std::mt19937 rng(8);
  const std::vector<int32_t> warm = tokens(rng, 17, 90);
  world.add({.prompt = warm, .max_tokens = 0});
  REQUIRE(world.scheduler.next(world.plan));
  world.model.run(world.plan);
  world.scheduler.done({});
  const int64_t handle = world.scheduler.keep(0);
  world.end(0);
  CHECK(world.scheduler.kept(handle).pages == 4);
  CHECK_FALSE(world.scheduler.fits(61, 5));
  CHECK(world.scheduler.fits(60, 5));
  for (int i = 0; i < 10; ++i) {
    world.add({.prompt = tokens(rng, 40, 90), .max_tokens = 10});
    while (world.open > 0) REQUIRE(world.step());
  }
  const int64_t hits = world.scheduler.stats().prefix_hits;
  world.add({.prompt = warm, .max_tokens = 1});
  while (world.open > 0) REQUIRE(world.step());
  CHECK(world.scheduler.stats().prefix_hits - hits == 16);
  CHECK(world.scheduler.kept(handle).hits == 1);
  CHECK(world.scheduler.stats().kept_pages == 4);
  world.scheduler.release(handle);
  CHECK(world.scheduler.stats().kept_pages == 0);
  world.check_empty();
}

TEST_CASE("a hundred thousand requests leave nothing behind") {
  SchedulerSpec spec{.n_pages = 600, .block_tokens = 16, .max_seqs = 64, .max_batch_tokens = 512};
  World world(spec);
  std::mt19937 rng(9);
#ifdef __SANITIZE_THREAD__
  const int64_t all = 4000;  // what TSan has time for; there are no threads in this
#else
  const int64_t all = 100000;
#endif
  int64_t left = all;
  size_t done = 0;
  while (left > 0 || world.open > 0) {
    for (; left > 0 && world.open < 80; --left) {
      // Mostly short, some long; a fifth begins with one of ten system prompts.
      const int64_t n = rng() % 20 == 0 ? 1 + static_cast<int64_t>(rng() % 200) : 1 + static_cast<int64_t>(rng() % 12);
      std::vector<int32_t> prompt = tokens(rng, n, 90);
      if (rng() % 5 == 0) {
        std::mt19937 system(static_cast<unsigned>(rng() % 10));
        const std::vector<int32_t> head = tokens(system, 48, 90);
        prompt.insert(prompt.begin(), head.begin(), head.end());
      }
      const int64_t max_tokens =
          rng() % 20 == 0 ? 1 + static_cast<int64_t>(rng() % 60) : 1 + static_cast<int64_t>(rng() % 6);
      CHECK(world.scheduler.fits(static_cast<int64_t>(prompt.size()), max_tokens));
      world.add({.prompt = std::move(prompt), .max_tokens = max_tokens});
    }
    REQUIRE(world.step());
    for (; done < world.outputs.size() &&
           static_cast<int64_t>(world.outputs[done].size()) == world.wishes[done].max_tokens;
         ++done) {
      CHECK(world.outputs[done] == NullModel::alone(world.wishes[done].prompt, world.wishes[done].max_tokens));
      world.outputs[done].shrink_to_fit();
      world.wishes[done].prompt = {};
    }
  }
  CHECK(static_cast<int64_t>(done) == all);
  CHECK(world.model.n_faults == 0);
  world.check_empty();
}

TEST_CASE("continuous batching against static batching of the same requests") {
  const auto wishes = [] {
    std::mt19937 rng(10);
    std::vector<Wish> w;
    for (int i = 0; i < 400; ++i)
      w.push_back({.prompt = tokens(rng, 16, 90), .max_tokens = 1 + static_cast<int64_t>(rng() % 100), .cache = false});
    return w;
  }();
  const SchedulerSpec spec{.n_pages = 4000, .block_tokens = 16, .max_seqs = 16, .max_batch_tokens = 512};
  World continuous(spec);
  for (const Wish& w : wishes) continuous.add(w);
  while (continuous.open > 0) REQUIRE(continuous.step());
  World fixed(spec);
  for (size_t i = 0; i < wishes.size(); i += 16) {  // the next sixteen when the last of sixteen is done
    for (size_t j = i; j < i + 16; ++j) fixed.add(wishes[j]);
    while (fixed.open > 0) REQUIRE(fixed.step());
  }
  continuous.check_outputs();
  CHECK(continuous.outputs == fixed.outputs);
  fmt::print("steps for 400 requests of 1 to 100 tokens, 16 at a time: static {}, continuous {}, ratio {:.2f}\n",
             fixed.steps, continuous.steps, static_cast<double>(fixed.steps) / static_cast<double>(continuous.steps));
  CHECK(continuous.steps < fixed.steps);
}

TEST_CASE("a log replays to the same plans, and a changed one does not") {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("rw_steps_{}.jsonl", ::getpid());
  const SchedulerSpec spec{
      .n_pages = 30, .block_tokens = 4, .max_seqs = 6, .max_batch_tokens = 24, .itl_budget_s = 0.0012};
  {
    World world(spec, StepLog(file, spec));
    std::mt19937 rng(11);
    for (int i = 0; i < 60; ++i) {
      world.add({.prompt = tokens(rng, 1 + static_cast<int64_t>(rng() % 30), 3),
                 .max_tokens = 1 + static_cast<int64_t>(rng() % 30)});
      world.step();
    }
    while (world.open > 0) REQUIRE(world.step());
    const ReplayReport r = replay(file);
    CHECK(r.first_difference == -1);
    CHECK(r.arrivals == 60);
    CHECK(r.steps == world.steps);
    CHECK(r.preemptions == world.scheduler.stats().preemptions);
  }
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  in.close();
  const auto write = [&](const std::vector<std::string>& l) {
    std::ofstream out(file);
    for (const std::string& line : l) out << line << '\n';
  };
  std::vector<std::string> changed = lines;
  const auto arrival = std::find_if(changed.begin(), changed.end(),
                                    [](const std::string& l) { return l.find("\"add\"") != std::string::npos; });
  const std::string prompt = "\"prompt\":[";
  const size_t first = arrival->find(prompt) + prompt.size();
  arrival->replace(first, arrival->find_first_not_of("0123456789", first) - first, "7,7");
  write(changed);
  const ReplayReport r = replay(file);
  CHECK(r.first_difference > 0);
  CHECK(r.expected != r.found);
  for (const char* bad : {"", "{}", "{\"format\":1}", "nothing"}) {
    write({bad});
    CHECK_THROWS_AS(replay(file), Error);
  }
  // A server that began again, and was killed.
  std::vector<std::string> twice = lines;
  twice.insert(twice.end(), lines.begin(), lines.end());
  write(twice);
  CHECK(replay(file).arrivals == 120);
  {
    std::ofstream out(file, std::ios::app);
    out << lines[1].substr(0, 9);
  }
  CHECK(replay(file).torn);
  for (const char* header :
       {"{\"format\":1,\"n_pages\":4,\"block_tokens\":0}", "{\"format\":1,\"n_pages\":999999999999}"}) {
    write({header});
    CHECK_THROWS_AS(replay(file), Error);
  }
  write({lines[0], "{\"release\":99}"});
  CHECK_THROWS_AS(replay(file), Error);
  write({lines[0], "{\"add\":\"x\"}"});
  CHECK_THROWS_AS(replay(file), Error);
  write({lines[0], "{\"keep\":3}"});
  CHECK_THROWS_AS(replay(file), Error);
  std::filesystem::remove(file);
  CHECK_THROWS_AS(replay(file), Error);
}
