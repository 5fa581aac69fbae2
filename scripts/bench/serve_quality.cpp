// What a weight format costs in quality: the perplexity of a text under each, through the runner that serves. JSON
// lines on stdout: first what was run on what, then {"format", "kv", "tokens", "bytes", "nats_per_token",
// "nats_per_byte", "perplexity", "ratio_to_bf16", "weights_bytes"} per format; ratio_to_bf16 is that of the
// perplexities, null where bf16 was not among the formats.
//
// The text is cut into windows of --seq-len tokens, each a prompt of its own; every token but a window's first is
// scored by the tokens before it in the window.
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/version.h"
#include "libcore/comm/comm.h"
#include "libcore/device/arena.h"
#include "libcore/formats/model_source.h"
#include "libcore/serve/model_runner.h"
#include "libcore/text/tokenizer.h"
#include "tools/cli.h"

namespace rw {
namespace {

struct Options {
  std::string model, text, kv_dtype = "auto";
  std::vector<std::string> format;
  int64_t max_tokens = 0, seq_len = 256, group = 0, threads = 0;
  double tail = 1;
};

FieldList fields(Options& o) {
  return {{.name = "model", .value = &o.model, .help = "a run, a checkpoint, or a Hugging Face directory"},
          {.name = "text", .value = &o.text, .help = "a file of text"},
          {.name = "tail", .value = &o.tail, .help = "share of the text's tokens, its end, that is scored", .max = 1},
          {.name = "max-tokens", .value = &o.max_tokens, .help = "score so many tokens at most; 0: all", .min = 0},
          {.name = "seq-len", .value = &o.seq_len, .help = "tokens of a window", .min = 2, .max = 1 << 20},
          {.name = "format", .value = &o.format, .help = "f32, bf16, int8 or int4; may repeat (default: all four)"},
          {.name = "group", .value = &o.group, .help = "weights that share a scale; 0: 128 for int8, 32 for int4"},
          {.name = "kv-dtype",
           .value = &o.kv_dtype,
           .help = "of cached keys and values; auto: f32 with f32, else bf16",
           .choices = {"auto", "int8"}},
          {.name = "threads", .value = &o.threads, .help = "0: all cores", .min = 0, .max = 4096}};
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad() || text.empty()) fail(ErrorKind::input, "{}: expected a file of text, found none or an empty one", path);
  return text;
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  utsname host{};
  uname(&host);
  return host.machine;
}

double load_average() {
  double load[1] = {};
  return getloadavg(load, 1) == 1 ? load[0] : 0;
}

RunnerSpec runner_spec(const Options& o, const ModelSpec& model, const std::string& format) {
  constexpr int64_t kPage = 16, kLogitRows = 64;
  const DType t = format == "f32" ? DType::f32 : DType::bf16;
  const WeightFormat weights = format == "int8"   ? WeightFormat::int8
                               : format == "int4" ? WeightFormat::int4
                                                  : WeightFormat::plain;
  return {.model = model,
          .precision = t,
          .kv_t = o.kv_dtype == "int8" ? DType::i8 : t,
          .quant = {.format = weights, .group = weights == WeightFormat::plain ? 0 : o.group},
          .threads = static_cast<int>(o.threads),
          .max_rows = o.seq_len,
          .max_seqs = kLogitRows,
          .max_len = o.seq_len,
          .page_tokens = kPage,
          .n_pages = (o.seq_len + kPage - 1) / kPage};
}

struct Score {
  double nats = 0, seconds = 0;
  int64_t tokens = 0, weights_bytes = 0;
  double perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }
};

Score score(const Options& o, const ModelSource& source, const std::string& format, const std::vector<int32_t>& ids) {
  const RunnerSpec spec = runner_spec(o, source.spec, format);
  const std::unique_ptr<Comm> self = make_self_comm();
  ModelRunner runner(spec, *self);
  runner.load(*source.weights);
  std::vector<int32_t> pages;
  for (int64_t p = 0; p < spec.n_pages; ++p) pages.push_back(static_cast<int32_t>(p));
  Score s;
  s.weights_bytes = runner.arena().bytes(MemoryOwner::weights) + runner.arena().bytes(MemoryOwner::packed_weights);
  const double start = now_s();
  const auto n = static_cast<int64_t>(ids.size());
  SequenceId window = 0;
  for (int64_t at = 0; at + 1 < n; at += o.seq_len, ++window) {
    const int64_t rows = std::min(o.seq_len, n - at);
    StepPlan plan{.step = window};
    if (window > 0) plan.ends.push_back(window - 1);
    plan.starts.push_back({.id = window, .tokens = {ids.begin() + at, ids.begin() + at + rows}, .prompt_logprobs = 0});
    plan.grants.push_back({.id = window, .pages = pages});
    plan.rows.push_back({.id = window, .first = 0, .n = rows, .sample = false});
    const StepOutput result = runner.run(plan);
    for (const Sampled& token : result.sequences.front().prompt) s.nats -= token.logprob, ++s.tokens;
  }
  s.seconds = now_s() - start;
  return s;
}

// The ids to score, and how many bytes those of them are that are scored.
struct Text {
  std::vector<int32_t> ids;
  int64_t scored_bytes = 0;
};

Text read_text(const Options& o, const Tokenizer& tokenizer) {
  Text text;
  tokenizer.encode(read_file(o.text), text.ids, Tokenizer::Specials::as_text);
  const auto all = static_cast<int64_t>(text.ids.size());
  const auto skip = all - static_cast<int64_t>(std::ceil(o.tail * static_cast<double>(all)));
  text.ids.erase(text.ids.begin(), text.ids.begin() + std::clamp<int64_t>(skip, 0, all));
  if (o.max_tokens > 0 && o.max_tokens < all - skip) text.ids.resize(static_cast<size_t>(o.max_tokens));
  if (text.ids.size() < 2)
    fail(ErrorKind::input, "{}: expected at least 2 tokens to score, found {}", o.text, text.ids.size());
  for (size_t i = 0; i < text.ids.size(); ++i)
    if (i % static_cast<size_t>(o.seq_len) != 0)
      text.scored_bytes += static_cast<int64_t>(tokenizer.token_bytes(text.ids[i]).size());
  return text;
}

int run(int argc, const char* const* argv) {
  Options o;
  const CommandLine command{.name = "serve_quality",
                            .description = "The perplexity of a text under each weight format.",
                            .fields = fields(o),
                            .required = {"model", "text"},
                            .takes_config = false};
  if (const auto code = parse_command_line(command, argc, argv)) return *code;
  if (o.format.empty()) o.format = {"bf16", "f32", "int8", "int4"};
  for (const std::string& f : o.format)
    if (f != "f32" && f != "bf16" && f != "int8" && f != "int4")
      fail(ErrorKind::usage, "--format {}: expected f32, bf16, int8 or int4", f);
  // What the others are compared with goes first.
  std::stable_partition(o.format.begin(), o.format.end(), [](const std::string& f) { return f == "bf16"; });
  if (o.threads == 0) o.threads = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));

  const ModelSource source = open_model_source(o.model);
  if (source.tokenizer_json.empty())
    fail(ErrorKind::input, "{}: holds no tokenizer; expected a tokenizer.json beside config.json", o.model);
  if (o.seq_len > source.spec.max_position)
    fail(ErrorKind::usage, "--seq-len {}: the model's longest sequence is {}", o.seq_len, source.spec.max_position);
  const std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer(source.tokenizer_json, o.model + " (tokenizer)");
  const Text text = read_text(o, *tokenizer);
  const Json head = {{"benchmark", "serve_quality"},
                     {"version", version()},
                     {"cpu", cpu_name()},
                     {"threads", o.threads},
                     {"load_average", load_average()},
                     {"quiet", "of no matter: no times are compared"},
                     {"model", o.model},
                     {"text", o.text},
                     {"tail", o.tail},
                     {"seq_len", o.seq_len}};
  fmt::print("{}\n", head.dump());
  std::optional<double> bf16;
  for (const std::string& format : o.format) {
    const Score s = score(o, source, format, text.ids);
    if (format == "bf16") bf16 = s.perplexity();
    Json line = {{"format", format},
                 {"kv", o.kv_dtype == "int8" ? "int8"
                        : format == "f32"    ? "f32"
                                             : "bf16"},
                 {"tokens", s.tokens},
                 {"bytes", text.scored_bytes},
                 {"nats_per_token", s.nats / static_cast<double>(s.tokens)},
                 {"nats_per_byte", s.nats / static_cast<double>(text.scored_bytes)},
                 {"perplexity", s.perplexity()},
                 {"ratio_to_bf16", nullptr},
                 {"weights_bytes", s.weights_bytes},
                 {"seconds", s.seconds}};
    if (bf16) line["ratio_to_bf16"] = s.perplexity() / *bf16;
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace rw

int main(int argc, char** argv) {
  rw::keep_freed_memory();
  return rw::run_tool("serve_quality", [&] { return rw::run(argc, argv); });
}
