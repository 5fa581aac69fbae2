#include "libcore/serve/admission.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "libcore/base/error.h"
#include "libcore/serve/memory_budget.h"
#include "libcore/serve/step_costs.h"

using namespace rw;
using Verdict = Admission::Verdict;

TEST_CASE("a request is refused at the door when it can never run, when the queue is full, when it would be late") {
  const AdmissionPolicy policy{.max_model_len = 100, .max_seqs = 4, .max_queue = 2};
  Load load{.usable_tokens = 80};
  CHECK(admit(load, policy, {1, 10, 20}).verdict == Verdict::accepted);
  CHECK(admit(load, policy, {1, 90, 101}).verdict == Verdict::too_long);
  CHECK(admit(load, policy, {1, 50, 81}).verdict == Verdict::too_long);
  CHECK(admit(load, policy, {1, 50, 81}).message.find("80 tokens") != std::string::npos);
  // Four places and two that wait.
  CHECK(admit(load, policy, {6, 10, 20}).verdict == Verdict::accepted);
  CHECK(admit(load, policy, {7, 10, 20}).verdict == Verdict::queue_full);
  load.running = 4;
  load.waiting = 1;
  CHECK(admit(load, policy, {1, 10, 20}).verdict == Verdict::accepted);
  load.waiting = 2;
  Admission full = admit(load, policy, {1, 10, 20});
  CHECK(full.verdict == Verdict::queue_full);
  CHECK(full.retry_after_s == 1);  // nothing is known of how long sequences take
  load.sequence_s = 40;            // four end in forty seconds: one place every ten
  CHECK(admit(load, policy, {1, 10, 20}).retry_after_s == 10);
  // No pages left though places are: nobody gets one without another's end.
  load = {.running = 1, .waiting = 2, .blocked = true, .usable_tokens = 80};
  CHECK(admit(load, policy, {1, 10, 20}).verdict == Verdict::queue_full);
}

TEST_CASE("the predicted time to the first token") {
  AdmissionPolicy policy{.max_model_len = 1000, .max_seqs = 4, .max_queue = 100, .slo_ttft_s = 2};
  Load load{.running = 2, .backlog_tokens = 500, .prefill_s_per_token = 0.001, .step_s = 0.1, .usable_tokens = 10000};
  CHECK(predicted_ttft_s(load, policy, 300) == doctest::Approx(0.8 + 0.1));
  CHECK(admit(load, policy, {1, 300, 310}).verdict == Verdict::accepted);
  load.backlog_tokens = 3000;
  const Admission late = admit(load, policy, {1, 300, 310});
  CHECK(late.verdict == Verdict::too_slow);
  CHECK(late.retry_after_s == doctest::Approx(3.4 - 2));
  load.running = load.waiting = 0;
  CHECK(admit(load, policy, {1, 300, 310}).verdict == Verdict::accepted);  // idle: nothing better is to be had
  // All places taken, three before it: the fourth to end makes room; they take 8 s each, four at once.
  load = {.running = 4, .waiting = 3, .sequence_s = 8, .usable_tokens = 10000};
  CHECK(predicted_ttft_s(load, policy, 10) == doctest::Approx(8));
}

TEST_CASE("the memory budget in three parts") {
  const MemoryAsked asked{
      .memory = 1000, .weights = 300, .runtime = 100, .page_bytes = 10, .page_tokens = 16, .max_len = 320};
  const MemoryBudget b = memory_budget(asked);
  CHECK(b.n_pages == 60);
  CHECK(b.kv == 600);
  CHECK(b.full_sequences == 3);
  CHECK(b.text().find("3.0 sequences") != std::string::npos);
  MemoryAsked share = asked;
  share.memory = 0;
  share.utilization = 0.5;
  share.available = 3000;
  CHECK(memory_budget(share).n_pages == 110);
  share.most_pages = 70;
  CHECK(memory_budget(share).n_pages == 70);
  MemoryAsked tight = asked;
  tight.memory = 599;
  CHECK_THROWS_WITH_AS(memory_budget(tight), doctest::Contains("--memory 1MiB"), Error);
  CHECK_THROWS_WITH_AS(memory_budget(tight), doctest::Contains("--max-model-len (to 304 tokens)"), Error);
  tight.memory = 600;
  CHECK(memory_budget(tight).full_sequences == 1);
  tight.memory = 10;
  CHECK_THROWS_AS(memory_budget(tight), Error);
}

TEST_CASE("step costs: chunks from measured steps") {
  StepCosts costs;
  CHECK(costs.chunk(0, 0.01, 16, 512) == 512);  // nobody to disturb
  CHECK(costs.chunk(4, 0, 16, 512) == 512);     // no budget
  CHECK(costs.chunk(4, 0.01, 16, 512) == 32);   // nothing known yet
  for (int i = 0; i < 50; ++i) costs.add(4, 0, 0.002);
  for (int i = 0; i < 50; ++i) costs.add(4, 100, 0.002 + 100 * 20e-6);
  CHECK(costs.decode_step_s(4) == doctest::Approx(0.002));
  CHECK(costs.prefill_s_per_token() == doctest::Approx(20e-6));
  CHECK(std::abs(costs.chunk(4, 0.01, 16, 512) - 350) <= 1);  // (9 ms - 2 ms) / 20 us
  CHECK(costs.chunk(4, 0.001, 16, 512) == 16);                // decodes alone are beyond it: prefill still goes on
  // More sequences cost more: the slope is learnt.
  for (int i = 0; i < 200; ++i) costs.add(i % 2 == 0 ? 4 : 8, 0, i % 2 == 0 ? 0.002 : 0.003);
  CHECK(costs.decode_step_s(8) == doctest::Approx(0.003).epsilon(0.05));
  CHECK(costs.decode_step_s(4) == doctest::Approx(0.002).epsilon(0.05));
}
