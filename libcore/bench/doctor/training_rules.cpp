#include "libcore/bench/doctor/training_rules.h"

namespace rw {
using enum Condition::Op;
using enum Severity;

// Thresholds, where they come from:
//   5 % of a step for data, 30 % for communication, 20 % for the bubble: beyond, the layout or the loader is worth a
//   change; below, the gain is within what a tuned run wins elsewhere.
//   Shares count for steps of at least 50 ms: in shorter ones latency and the scheduler rule.
//   1.2 times the peers for 20 steps makes a straggler (libcore/train/straggler.h), 8 deviations a spike (guard.h).
std::vector<Rule> data_rules() {
  constexpr Layer layer = Layer::data_flow;
  return {
      {"data.nonfinite_batch",
       layer,
       failure,
       0.9,
       {{above, "data.nonfinite_batch", 1}},
       "The loss was not finite {data.nonfinite_batch} times with the same data ({data.nonfinite_batch:text}) and "
       "finite with others.",
       "Look at the documents of that batch, and leave them out.",
       "dtrain --resume auto --out {dir} --nan-trace"},
      {"data.shuffled",
       layer,
       warning,
       0.9,
       {{below, "data.order_gain", 0.02}},
       "The tokens of {data.order_gain:text} come in no order: one tells nothing of the next ({data.order_gain:%} of "
       "the entropy), so that there is nothing to learn.",
       "Prepare the data again from the text; look at how it was tokenized, packed or shuffled.",
       "dtrain prepare --help"},
      {"data.repeat",
       layer,
       warning,
       0.9,
       {{above, "data.repeated_share", 0.02}, {above, "data.repeats", 1}},
       "Batches come again: {data.repeats} of them, {data.repeated_share:%} of the steps ({data.repeated_share:text}), "
       "every {data.period} steps. An epoch is shuffled anew and never repeats a batch.",
       "Look for a corpus that is a few texts over and over, or far smaller than meant; prepare it without duplicates.",
       "dtrain prepare --help",
       {}},
      {"data.looping",
       layer,
       warning,
       0.75,
       {{above, "data.repeated_windows", 0.3}},
       "{data.repeated_windows:%} of the stretches of 64 tokens in {data.repeated_windows:text} were there before: the "
       "corpus loops.",
       "Prepare the data again without the copies: the loss of a loop says nothing about the model.",
       "dtrain prepare --help",
       {"data.repeat"}},
      {"data.spike_at_stall",
       layer,
       warning,
       0.6,
       {{present, "spike.near_data_stall"}, {above, "spike.count", 0}},
       "The loss jumped ({spike.count:text}) when {spike.near_data_stall:text}.",
       "Look at the storage that the data lies on, and at the tokens of these steps, before any hyper-parameter.",
       "dbench storage --dir {dir}"},
      {"data.odd_batch",
       layer,
       warning,
       0.8,
       {{present, "spike.of_batch"}},
       "The loss jumped on single batches and was back in the next steps ({spike.of_batch:text}; {spike.count} in "
       "all). Around it: {spike.around:text}. That is a batch that is unlike the others, not a learning rate.",
       "Look at the documents of these samples (samples in metrics.jsonl); --on-spike skip leaves their update out.",
       "dtrain --resume auto --out {dir} --on-spike skip",
       {"params.diverged"}},
      {"data.wait",
       layer,
       warning,
       0.85,
       {{above, "data.share", 0.05}, {above, "data.s", 0.001}},
       "Ranks wait for data in {data.share:%} of a step ({data.s:s} of {step.s:s}).",
       "Put the token file on a local disk or into memory; look at what else reads from that storage.",
       "dbench storage --dir {dir}"},
      {"data.stall",
       layer,
       warning,
       0.75,
       {{above, "data.stalls", 1}, {above, "data.stall_share", 0.02}},
       "The loader stalled in {data.stalls} steps, up to {data.stall_s:s} ({data.stalls:text}), a usual step takes "
       "{step.s:s}: {data.stall_share:%} of the time.",
       "Look at the storage of the token file at these times (resources.jsonl: disks, io_wait).",
       "dbench storage --dir {dir}",
       {"data.wait"}},
      {"data.uneven",
       layer,
       warning,
       0.75,
       {{above, "data.mean_share", 0.08}, {below, "data.share", 0.0501}},
       "Most steps find their data ready, some wait for it: {data.mean_share:%} of the time ({data.mean_share:text}).",
       "Look for what comes in that rhythm: a loader that fills its buffer, a file at its end, others on that storage.",
       "dbench storage --dir {dir}",
       {"data.wait", "data.stall"}},
      {"data.memorised",
       layer,
       warning,
       0.6,
       {{above, "data.epochs", 4}, {above, "data.validation_gap", 1}},
       "The data was seen {data.epochs} times and is known by heart: the loss is {data.validation_gap:text}.",
       "More data, or fewer steps; beyond four epochs little is gained (Muennighoff et al. 2023).",
       "dbench report {dir} -o report.html",
       {"data.looping", "data.repeat"}},
      {"data.epochs",
       layer,
       info,
       0.5,
       {{above, "data.epochs", 4}},
       "The data was seen {data.epochs} times.",
       "More data, or fewer steps.",
       ""},
  };
}

std::vector<Rule> communication_rules() {
  constexpr Layer layer = Layer::communication;
  return {
      {"comm.rank_missing",
       layer,
       failure,
       0.95,
       {{present, "comm.verdict"}},
       "A wait ended in a time-out: {comm.verdict:text}.",
       "Look at that rank's host and process (held, killed, swapping, a lost link?), then go on from the last "
       "checkpoint.",
       "dbench doctor --logs {dir}; mpirun dbench preflight"},
      {"comm.failed",
       layer,
       failure,
       0.6,
       {{present, "comm.failed"}, {absent, "comm.verdict"}},
       "The run failed: {comm.failed:text}.",
       "Look at what the other ranks said at that time.",
       "dbench doctor --logs {dir}"},
      {"comm.loss",
       layer,
       warning,
       0.7,
       {{above, "net.retransmits_per_s", 5}, {above, "net.retransmit_samples", 0.2}, {above, "comm.share", 0.15}},
       "The network loses packets: {net.retransmits_per_s} TCP segments a second were sent again, in "
       "{net.retransmit_samples:%} of the samples; communication takes {comm.share:%} of a step.",
       "Look at the cable, the switch's counters, MTU and congestion control of that link.",
       "mpirun dbench preflight"},
      {"comm.slow_link",
       layer,
       warning,
       0.8,
       {{above, "comm.crossing", 0}, {above, "comm.share_of_long_step", 0.3}, {below, "comm.rate", 1.25e8}},
       "A link between hosts is slow: communication takes {comm.share_of_long_step:%} of a step at {comm.rate:bytes} a "
       "second, less than 1 Gbit/s ({comm.crossing:text} groups cross hosts; most bytes: {comm.most_bytes:text}, "
       "{comm.most_bytes:bytes} a step).",
       "Measure the links pair by pair; look for a limit, a wrong interface (MPI over lo, docker0) or a duplex fault.",
       "mpirun dbench comm --pairs alone; mpirun dbench preflight",
       {"comm.loss"}},
      {"comm.tp_crosses",
       layer,
       warning,
       0.7,
       {{present, "comm.tp_crossing"}},
       "Tensor-parallel groups of {comm.tp_crossing} ranks cross hosts ({comm.tp_crossing:text}): each layer waits for "
       "the network.",
       "Keep --tp within a host (tp is the fastest index of ranks), use --pp or --dp across.",
       "dplan train --help"},
      {"comm.predicted",
       layer,
       warning,
       0.7,
       {{above, "comm.over_predicted", 1.5},
        {above, "comm.beyond_predicted_share", 0.1},
        {above, "comm.share_of_long_step", 0.1}},
       "Communication takes {comm.s:s} a step, {comm.predicted_s:s} was predicted.",
       "Measure the links again, and look for who arrives late.",
       "mpirun dbench comm; dplan calibrate",
       {"comm.loss", "comm.slow_link", "cpu.hog", "rank.slow"}},
      {"comm.share",
       layer,
       warning,
       0.6,
       {{above, "comm.share_of_long_step", 0.3}, {absent, "cpu.oversubscribed"}, {absent, "cpu.crowded"}},
       "Communication takes {comm.share_of_long_step:%} of a step, most bytes by {comm.most_bytes:text} "
       "({comm.most_bytes:bytes} a step).",
       "Less of it: larger micro-batches, fewer tensor-parallel ranks, --zero lower; or find who arrives late.",
       "mpirun dbench comm; dplan train",
       {"comm.loss", "comm.slow_link", "comm.tp_crosses", "comm.late", "cpu.hog", "cpu.steal", "rank.slow",
        "cpu.clock"}},
      {"comm.late",
       layer,
       warning,
       0.7,
       {{above, "comm.late_steps", 1}, {above, "comm.late_share", 0.1}},
       "In {comm.late_steps} steps the ranks waited for one of them, up to {comm.late_s:s} ({comm.late_steps:text}); a "
       "usual step takes {step.s:s}. That is {comm.late_share:%} of the time.",
       "Find the rank that pauses: its host's other work, its storage, its memory.",
       "dtrain --trace-steps, over such steps; mpirun dbench preflight",
       {"comm.loss", "comm.rank_missing", "memory.swap", "checkpoint.stall", "data.stall"}},
      {"comm.spike_at_wait",
       layer,
       warning,
       0.6,
       {{present, "spike.near_wait"}, {above, "spike.count", 0}},
       "The loss jumped ({spike.count:text}) when {spike.near_wait:text}.",
       "Find out what held the ranks up before a hyper-parameter is changed.",
       "dtrain --resume auto --out {dir} --check-replicas-every 10"},
      {"comm.latency",
       layer,
       info,
       0.5,
       {{above, "comm.share", 0.3}, {absent, "comm.share_of_long_step"}},
       "Communication takes {comm.share:%} of a step, which is only {step.s:s} long: latency, not the layout.",
       "More work a step, if this is not only a trial.",
       "",
       {"cpu.hog"}},
  };
}

const std::vector<Rule>& training_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = data_rules();
    for (const auto& more : {communication_rules(), resource_rules(), parameter_rules()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return rules;
}

}  // namespace rw
