#include "tools/cli.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "libcore/base/error.h"

using namespace rw;

namespace {

struct Spec {
  bool json = false, overlap = true;
  int64_t steps = 100, bytes = 1 << 20;
  double lr = 3e-4;
  std::string out, prompt = "hello", precision = "f32";
  std::vector<std::string> data, path;
};

CommandLine line_of(Spec& s) {
  return {.name = "tool sub",
          .description = "Does things.",
          .fields = {{"json", &s.json, "JSON out"},
                     {"overlap", &s.overlap, "overlap things"},
                     {.name = "steps", .value = &s.steps, .help = "how many", .min = 0, .group = "Training"},
                     {.name = "bytes", .value = &s.bytes, .help = "how much", .is_size = true},
                     {"lr", &s.lr, "rate"},
                     {"out", &s.out, "folder"},
                     {"prompt", &s.prompt, "text"},
                     {"precision", &s.precision, "of compute", {"f32", "bf16"}},
                     {"data", &s.data, "token files"},
                     {"path", &s.path, "things to look at"}},
          .positional = {"path"}};
}

std::optional<int> parse(const CommandLine& line, std::vector<const char*> args) {
  args.insert(args.begin(), "tool");
  return parse_command_line(line, static_cast<int>(args.size()), args.data());
}

Spec parsed(std::vector<const char*> args) {
  Spec spec;
  CHECK_FALSE(parse(line_of(spec), std::move(args)).has_value());
  return spec;
}

std::string error_of(std::vector<const char*> args) {
  Spec spec;
  try {
    parse(line_of(spec), std::move(args));
  } catch (const Error& e) {
    return std::to_string(exit_code(e.kind())) + " " + e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What `action` writes to standard output (or, with `descriptor` 2, to standard error).
template <typename Action>
std::string output_of(Action action, FILE* stream = stdout) {
  std::fflush(stream);
  FILE* file = std::tmpfile();
  const int saved = dup(fileno(stream));
  dup2(fileno(file), fileno(stream));
  action();
  std::fflush(stream);
  dup2(saved, fileno(stream));
  close(saved);
  std::string text(1 << 16, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

struct File {
  std::string path;
  explicit File(const std::string& content) {
    path = (std::filesystem::temp_directory_path() / "rw-cli-XXXXXX").string();
    close(mkstemp(path.data()));
    std::ofstream(path) << content;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("flags set fields; nothing keeps the defaults") {
  const Spec none = parsed({});
  CHECK(none.steps == 100);
  CHECK(none.overlap);
  CHECK(none.prompt == "hello");
  const Spec s =
      parsed({"--steps", "7", "--lr=1e-3", "--bytes", "64Ki", "--out", "runs/x", "--precision=bf16", "--json"});
  CHECK(s.steps == 7);
  CHECK(s.lr == 1e-3);
  CHECK(s.bytes == 65536);
  CHECK(s.out == "runs/x");
  CHECK(s.precision == "bf16");
  CHECK(s.json);
  CHECK(parsed({"--steps", "7", "--steps", "8"}).steps == 8);
}

TEST_CASE("booleans") {
  CHECK_FALSE(parsed({"--no-overlap"}).overlap);
  CHECK_FALSE(parsed({"--overlap", "false"}).overlap);
  CHECK_FALSE(parsed({"--overlap=false"}).overlap);
  CHECK(parsed({"--json", "true"}).json);
  CHECK(parsed({"--json=true"}).json);
  CHECK_FALSE(parsed({"--json", "--no-json"}).json);
  const Spec s = parsed({"--json", "a.txt"});  // a bare argument after a boolean is not its value
  CHECK(s.json);
  CHECK(s.path == std::vector<std::string>{"a.txt"});
}

TEST_CASE("lists repeat; bare arguments go to the positional field") {
  CHECK(parsed({"--data", "a.h5:0.7", "--data", "b.h5"}).data == std::vector<std::string>{"a.h5:0.7", "b.h5"});
  const Spec s = parsed({"one", "--data", "a", "two", "--steps", "3", "three"});
  CHECK(s.data == std::vector<std::string>{"a"});
  CHECK(s.path == std::vector<std::string>{"one", "two", "three"});
  CHECK(parsed({"--path", "one", "two"}).path == std::vector<std::string>{"one", "two"});
  CHECK(parsed({"--", "--odd", "-x"}).path == std::vector<std::string>{"--odd", "-x"});
  CHECK(parsed({"--path", "-", "--steps", "1"}).path == std::vector<std::string>{"-"});
  CHECK(parsed({"-", "x"}).path == std::vector<std::string>{"-", "x"});
}

TEST_CASE("values that parsers like to misread") {
  CHECK(parsed({"--lr", "-1"}).lr == -1);
  CHECK(parsed({"--lr", "-1e-3"}).lr == -1e-3);
  CHECK(parsed({"--prompt", ""}).prompt.empty());
  CHECK(parsed({"--prompt=", "--steps", "5"}).prompt.empty());
  CHECK(parsed({"--prompt=", "--steps", "5"}).steps == 5);
  for (const char* text : {"[INST] a, b [/INST]", "[a,b]", "a,b", "--not-a-flag", "-x", "{}", "a=b", "'quoted'",
                           "\"q\"", "%%", "line\nline", "\xc3\xa9", "-", "[]"}) {
    CAPTURE(text);
    CHECK(parsed({"--prompt", text}).prompt == text);
    CHECK(parsed({(std::string("--prompt=") + text).c_str()}).prompt == text);
    CHECK(parsed({"--data", text, "--data", "b"}).data == std::vector<std::string>{text, "b"});
  }
}

TEST_CASE("wrong use exits 2 and says what to do") {
  CHECK(contains(error_of({"--stps", "5"}), "2 unknown flag --stps; did you mean --steps?"));
  CHECK(contains(error_of({"--zzzzzzzzzzz"}), "unknown flag --zzzzzzzzzzz; see tool sub --help"));
  CHECK(contains(error_of({"-q"}), "unknown flag -q"));
  CHECK(contains(error_of({"--steps", "many"}), "2 --steps: "));
  CHECK(contains(error_of({"--steps", "-3"}), "--steps"));
  CHECK(contains(error_of({"--steps"}), "--steps: expected a value, found the end of the command line"));
  CHECK(contains(error_of({"--out", "--steps", "5"}), "--out: expected a value, found --steps"));
  CHECK(contains(error_of({"--precision", "f8"}), "expected one of f32, bf16, found \"f8\""));
  CHECK(contains(error_of({"--json=maybe"}), "json"));
  Spec spec;
  CommandLine line = line_of(spec);
  line.positional = {};
  line.required = {"out"};
  CHECK_THROWS_WITH_AS(parse(line, {"stray"}), "unexpected argument \"stray\"; see tool sub --help", Error);
  CHECK_THROWS_WITH_AS(parse(line, {}), "--out is needed (folder); see tool sub --help", Error);
  CHECK_FALSE(parse(line, {"--out", "x"}).has_value());
}

TEST_CASE("files: later wins, flags win, wherever they stand") {
  const File a("steps = 1\nlr = 0.5\ndata = [\"x\", \"y\"]\n[plan]\nanything = 1\n"), b("steps = 2\n"),
      bad("stepz = 2\n");
  Spec s;
  CommandLine line = line_of(s);
  line.skip_tables = {"plan"};
  CHECK_FALSE(parse(line, {"--data", "z", "--config", a.path.c_str(), "--config", b.path.c_str()}).has_value());
  CHECK(s.steps == 2);
  CHECK(s.lr == 0.5);
  CHECK(s.data == std::vector<std::string>{"z"});
  CHECK(parsed({"--steps", "9", "--config", b.path.c_str()}).steps == 9);
  CHECK(contains(error_of({"--config", bad.path.c_str()}), "did you mean \"steps\"?"));
  CHECK(contains(error_of({"--config", "/no/such.toml"}), "/no/such.toml"));
  line.takes_config = false;
  CHECK_THROWS_AS(parse(line, {"--config", b.path.c_str()}), Error);
}

TEST_CASE("--print-config gives TOML that reads back to the same values") {
  Spec s;
  std::optional<int> code;
  const std::string toml = output_of([&] {
    code =
        parse(line_of(s), {"--print-config", "--steps", "5", "--prompt", "a \"b\"\n", "--data", "x", "--no-overlap"});
  });
  CHECK(code == 0);
  const File file(toml);
  const Spec again = parsed({"--config", file.path.c_str()});
  CHECK(again.steps == 5);
  CHECK(again.prompt == "a \"b\"\n");
  CHECK(again.data == std::vector<std::string>{"x"});
  CHECK_FALSE(again.overlap);
}

TEST_CASE("a command that has no device says so to who asks for one") {
  Spec s;
  CommandLine line = line_of(s);
  line.is_cpu_alone = true;
  CHECK_THROWS_WITH_AS(parse(line, {"--device", "cuda"}),
                       "unknown flag --device: tool sub runs on the CPU alone; leave it out", Error);
  CHECK_THROWS_WITH_AS(parse(line, {"--device=cpu"}),
                       "unknown flag --device: tool sub runs on the CPU alone; leave it out", Error);
}

TEST_CASE("--help lists every field under its group, with choices and default") {
  Spec s;
  std::optional<int> code;
  CommandLine line = line_of(s);
  line.footer = "More words.";
  const std::string help = output_of([&] { code = parse(line, {"--help"}); });
  CHECK(code == 0);
  for (const Field& f : line.fields) CHECK(contains(help, "--" + f.name));
  for (const char* part : {"Does things.", "Training", "how many [100]", "of compute (f32, bf16) [f32]",
                           "[on; --no-overlap turns it off]", "More words.", "--config", "--print-config"}) {
    CAPTURE(part);
    CHECK(contains(help, part));
  }
  CHECK(contains(output_of([&] { code = parse(line, {"--version"}); }), "rankwright "));
  CHECK(contains(output_of([&] { code = parse(line, {"--version"}); }), " (cuda: "));
  CHECK(code == 0);
}

TEST_CASE("run_tool turns errors into exit codes") {
  const auto run = [](auto body) {
    int code = -1;
    const std::string text = output_of([&] { code = run_tool("tool", body); }, stderr);
    return std::to_string(code) + " " + text;
  };
  CHECK(run([] { return 0; }) == "0 ");
  CHECK(run([]() -> int { fail(ErrorKind::verdict, "no"); }) == "3 tool: error: no\n");
  CHECK(run([]() -> int { fail(ErrorKind::input, "bad"); }) == "2 tool: error: bad\n");
  CHECK(contains(run([]() -> int { throw std::bad_alloc(); }), "1 tool: internal error"));
}
