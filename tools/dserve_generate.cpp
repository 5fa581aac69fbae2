#include "tools/dserve_generate.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/comm.h"
#include "libcore/device/device.h"
#include "libcore/formats/model_source.h"
#include "libcore/serve/generate.h"
#include "libcore/text/tokenizer.h"
#include "tools/cli.h"
#include "tools/job_command_line.h"

namespace rw {
namespace {

struct GenerateFlags {
  std::string model, prompt, precision = "bf16", device = "cpu";
  int64_t max_tokens = 128, top_k = 0, seed = 0, threads = 0;
  double temperature = 1.0, top_p = 1.0;
  bool ignore_eos = false, json = false;
};

FieldList fields(GenerateFlags& g) {
  return {
      {.name = "model", .value = &g.model, .help = "a run, a checkpoint, or a Hugging Face directory"},
      {.name = "prompt", .value = &g.prompt, .help = "text to continue; - reads it from standard input"},
      {.name = "max-tokens", .value = &g.max_tokens, .help = "tokens to generate at most", .min = 1, .max = 1 << 24},
      {.name = "temperature",
       .value = &g.temperature,
       .help = "0 is greedy",
       .min = 0,
       .max = 100,
       .group = "Sampling"},
      {.name = "top-k",
       .value = &g.top_k,
       .help = "draw from the k most likely; 0: all",
       .min = 0,
       .max = 1 << 24,
       .group = "Sampling"},
      {.name = "top-p",
       .value = &g.top_p,
       .help = "draw from the smallest set with this share",
       .min = 0,
       .max = 1,
       .group = "Sampling"},
      {.name = "seed", .value = &g.seed, .help = "of the draws", .min = 0, .max = 9e15, .group = "Sampling"},
      {.name = "ignore-eos",
       .value = &g.ignore_eos,
       .help = "do not stop at an end-of-text token",
       .group = "Sampling"},
      {.name = "precision",
       .value = &g.precision,
       .help = "of activations and products",
       .choices = {"f32", "bf16"},
       .group = "Device"},
      {.name = "device", .value = &g.device, .help = "cpu, cuda or cuda:N", .group = "Device"},
      {.name = "threads", .value = &g.threads, .help = "0: all cores", .min = 0, .max = 4096, .group = "Device"},
      {.name = "json", .value = &g.json, .help = "print one JSON object instead of the text as it comes"}};
}

std::string read_stdin() {
  std::string text;
  char buffer[1 << 14];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) text.append(buffer, n);
  return text;
}

// Bytes of `text` that end on a whole UTF-8 character; the rest waits for the next token. Bytes that can never become
// one pass as they are.
size_t whole_characters(const std::string& text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if (c < 0x80) return text.size();
    if (c >= 0xC0) {
      const size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
      return length > back ? text.size() - back : text.size();
    }
  }
  return text.size();
}

}  // namespace

int dserve_generate(int argc, const char* const* argv) {
  if (const auto world = make_world_comm(); world->size() > 1)
    return run_job("dserve generate", *world, [&]() -> int {
      throw SharedError(ErrorKind::usage,
                        fmt::format("expected one rank, found {}: start it without mpirun (dserve itself serves a "
                                    "model on several ranks)",
                                    world->size()));
    });
  GenerateFlags flags;
  const CommandLine command{.name = "dserve generate",
                            .description = "Continues one prompt; the text goes to standard output as it is made.",
                            .fields = fields(flags),
                            .required = {"model", "prompt"}};
  if (const auto code = parse_command_line(command, argc, argv)) return *code;
  check_device({.device = flags.device});
  const ModelSource source = open_model_source(flags.model);
  if (source.tokenizer_json.empty())
    fail(ErrorKind::input, "{}: holds no tokenizer; expected a tokenizer.json beside config.json", flags.model);
  const std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer(source.tokenizer_json, flags.model + " (tokenizer)");
  if (tokenizer->vocab_size() > source.spec.vocab_size)
    fail(ErrorKind::input, "{}: its tokenizer has {} tokens, the model's vocabulary {}", flags.model,
         tokenizer->vocab_size(), source.spec.vocab_size);
  GenerateRequest request;
  request.max_new_tokens = flags.max_tokens;
  request.sampling.temperature = flags.temperature;
  request.sampling.top_k = flags.top_k;
  request.sampling.top_p = flags.top_p;
  request.sampling.seed = static_cast<uint64_t>(flags.seed);
  request.stop_at_end = !flags.ignore_eos;
  request.stop_id = tokenizer->end_of_text();
  const std::string prompt = flags.prompt == "-" ? read_stdin() : flags.prompt;
  tokenizer->encode(prompt, request.prompt);
  if (request.prompt.empty())
    fail(ErrorKind::usage, "--prompt: expected text that makes at least one token, found none");
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt > source.spec.max_position)
    fail(ErrorKind::usage, "--prompt: {} tokens, the model's longest sequence is {}", n_prompt,
         source.spec.max_position);

  const int threads = flags.threads > 0 ? static_cast<int>(flags.threads)
                                        : static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  const std::unique_ptr<Device> device = open_device({.device = flags.device, .threads = threads});
  Generator generator({.model = source.spec,
                       .precision = flags.precision == "f32" ? DType::f32 : DType::bf16,
                       .threads = threads,
                       .max_tokens = std::min(source.spec.max_position, n_prompt + flags.max_tokens),
                       .device = device.get()},
                      *source.weights);
  std::string text, pending;
  if (!flags.json) std::fwrite(prompt.data(), 1, prompt.size(), stdout);
  const GenerateReport report = generator.generate(request, [&](int32_t id) {
    pending += tokenizer->token_bytes(id);
    const size_t n = whole_characters(pending);
    text += pending.substr(0, n);
    if (!flags.json) std::fwrite(pending.data(), 1, n, stdout), std::fflush(stdout);
    pending.erase(0, n);
    return true;
  });
  text += pending;
  if (!flags.json) {
    std::fwrite(pending.data(), 1, pending.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
  } else {
    const Json result = {{"prompt", prompt},
                         {"text", text},
                         {"prompt_tokens", report.prompt_tokens},
                         {"new_tokens", report.new_tokens},
                         {"finish_reason", report.stopped ? "stop" : "length"},
                         {"prefill_s", report.prefill_s},
                         {"decode_s", report.decode_s}};
    fmt::print("{}\n", result.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  fmt::print(stderr, "{} prompt tokens in {:.3f} s, {} new tokens in {:.3f} s ({:.1f} tok/s)\n", report.prompt_tokens,
             report.prefill_s, report.new_tokens, report.decode_s,
             report.decode_s > 0 ? static_cast<double>(report.new_tokens) / report.decode_s : 0.0);
  return 0;
}

}  // namespace rw
