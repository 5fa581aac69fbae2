#include "tools/cli.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/version.h"
#include "libcore/device/cuda_variant.h"

namespace rw {
namespace {

using Values = std::vector<std::string>;

bool is_bool(const Field& f) { return std::holds_alternative<bool*>(f.value); }
bool is_list(const Field& f) { return std::holds_alternative<Values*>(f.value); }

const char* value_name(const Field& f) {
  if (std::holds_alternative<int64_t*>(f.value)) return f.is_size ? "SIZE" : "N";
  if (std::holds_alternative<double*>(f.value)) return "X";
  return "TEXT";
}

std::string help_text(const Field& f) {
  std::string text = f.help;
  if (!f.choices.empty()) {
    text += " (";
    for (const std::string& c : f.choices) text += (&c == &f.choices.front() ? "" : ", ") + c;
    text += ")";
  }
  const std::string value = field_text(f);
  if (is_bool(f) && value == "true") return text + " [on; --no-" + f.name + " turns it off]";
  if (!is_bool(f) && !value.empty()) text += " [" + value + "]";
  return text;
}

bool is_true_or_false(const std::string& s) { return s == "true" || s == "false"; }

[[noreturn]] void refuse_unknown(const CommandLine& line, const std::string& arg) {
  std::vector<std::string> known = {"help", "version"};
  if (line.takes_config) known.insert(known.end(), {"config", "print-config"});
  for (const Field& f : line.fields) known.push_back(f.name);
  const std::string flag = arg.substr(0, arg.find('='));
  const std::string near = flag.size() > 2 ? nearest(flag.substr(flag.find_first_not_of('-')), known) : "";
  if (line.is_cpu_alone && flag == "--device")
    fail(ErrorKind::usage, "unknown flag {}: {} runs on the CPU alone; leave it out", flag, line.name);
  fail(ErrorKind::usage, "unknown flag {}; {}", flag,
       near.empty() ? "see " + line.name + " --help" : "did you mean --" + near + "?");
}

// Rewrites arguments into the form that CLI11 cannot misread: "--lr -1" would be taken for a flag -1, "--name=" would
// swallow the next argument, "--flag true" leaves "true" over, and bare arguments end a list. So a flag with a value
// becomes two arguments, a boolean with a value one, and a bare argument the flag of its field.
class Normalizer {
 public:
  explicit Normalizer(const CommandLine& line) : line_(line) {}

  Values run(int argc, const char* const* argv) {
    bool is_bare = false;  // after --
    for (int i = 1; i < argc; ++i) {
      const std::string arg = full_name(argv[i]);
      if (is_bare || arg == "-" || arg.empty() || arg[0] != '-') {
        add_bare(arg);
        continue;
      }
      if (arg == "--") {
        is_bare = true;
        continue;
      }
      const size_t equals = arg.find('=');
      const std::string name =
          arg.substr(std::min<size_t>(2, arg.size()), equals == std::string::npos ? equals : equals - 2);
      const Field* field = arg[1] == '-' ? find_field(line_.fields, name) : nullptr;
      const bool takes_value =
          (field != nullptr && !is_bool(*field)) || (line_.takes_config && arg[1] == '-' && name == "config");
      const Field* negated = name.substr(0, 3) == "no-" ? find_field(line_.fields, name.substr(3)) : nullptr;
      if (field == nullptr && negated != nullptr && is_bool(*negated) && equals == std::string::npos) {
        out_.push_back("--" + negated->name + "=false");
      } else if (takes_value && equals != std::string::npos) {
        add(name, arg.substr(equals + 1));
      } else if (takes_value) {
        if (i + 1 == argc || is_known_flag(argv[i + 1]))
          fail(ErrorKind::usage, "--{}: expected a value, found {}", name,
               i + 1 == argc ? "the end of the command line" : argv[i + 1]);
        add(name, argv[++i]);
      } else if (field != nullptr && equals == std::string::npos && i + 1 < argc && is_true_or_false(argv[i + 1])) {
        out_.push_back(arg + "=" + argv[++i]);
      } else {
        // Here, before the next argument is taken for a bare one.
        if (field == nullptr && arg != "-h" && !is_known_flag(arg)) refuse_unknown(line_, arg);
        out_.push_back(arg);
      }
    }
    return std::move(out_);
  }

 private:
  std::string full_name(const std::string& arg) const {
    for (const auto& [short_flag, name] : line_.short_flags)
      if (arg == short_flag) return "--" + name;
    return arg;
  }

  bool is_known_flag(const std::string& arg) const {
    if (full_name(arg) != arg) return true;
    if (arg.substr(0, 2) != "--") return false;
    std::string name = arg.substr(2, arg.find('=') == std::string::npos ? std::string::npos : arg.find('=') - 2);
    if (name.substr(0, 3) == "no-") name = name.substr(3);
    return find_field(line_.fields, name) != nullptr || name == "config" || name == "help" || name == "version" ||
           name == "print-config";
  }

  void add(const std::string& name, const std::string& value) {
    out_.push_back("--" + name);
    out_.push_back(value);
  }

  void add_bare(const std::string& arg) {
    if (next_positional_ == line_.positional.size())
      fail(ErrorKind::usage, "unexpected argument \"{}\"; see {} --help", arg, line_.name);
    const std::string& name = line_.positional[next_positional_];
    add(name, arg);
    if (!is_list(*find_field(line_.fields, name))) ++next_positional_;
  }

  const CommandLine& line_;
  Values out_;
  size_t next_positional_ = 0;
};

// What the command line said, before it is applied: files come first, whatever the order.
struct Said {
  std::map<std::string, Values> values;
  Values configs;
  bool print_config = false;
};

void add_field(CLI::App& app, const CommandLine& line, const Field& f, Values& values) {
  const bool is_positional = std::find(line.positional.begin(), line.positional.end(), f.name) != line.positional.end();
  CLI::Option* option = nullptr;
  if (is_bool(f)) {
    option = app.add_flag("--" + f.name, values, help_text(f));
  } else {
    std::string names = "--" + f.name + (is_positional ? "," + f.name : "");
    for (const auto& [short_flag, name] : line.short_flags)
      if (name == f.name) names = short_flag + "," + names;
    option = app.add_option(names, values, help_text(f));
    option->type_name(value_name(f))
        ->expected(1, is_list(f) ? CLI::detail::expected_max_vector_size : 1)
        ->allow_extra_args(false);
  }
  option->multi_option_policy(is_list(f) ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast);
  option->group(f.group.empty() ? "Options" : f.group);
}

std::string config_text(const std::string& file) {
  if (file != "-") return read_file(file);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void apply(const CommandLine& line, const Said& said) {
  for (const std::string& file : said.configs)
    read_toml(line.fields, config_text(file), file == "-" ? "standard input" : file, line.skip_tables,
              line.skipped_tables);
  for (const Field& f : line.fields) {
    const Values& values = said.values.at(f.name);
    if (values.empty()) continue;
    if (auto* list = std::get_if<Values*>(&f.value)) (*list)->clear();
    for (const std::string& value : values) set_field(f, value, "--");
  }
}

}  // namespace

std::optional<int> parse_command_line(const CommandLine& line, int argc, const char* const* argv) {
  CLI::App app(line.description, line.name);
  app.footer(line.footer);
  app.get_formatter()->column_width(34);
  app.set_version_flag("--version", fmt::format("rankwright {} ({})", version(), cuda_variant()));
  Said said;
  for (const Field& f : line.fields) add_field(app, line, f, said.values[f.name]);
  if (line.takes_config) {
    app.add_option("--config", said.configs,
                   "TOML file with these keys; may repeat, later wins, flags win over files; - is standard input")
        ->type_name("FILE")
        ->allow_extra_args(false);
    app.add_flag("--print-config", said.print_config, "print the effective configuration as TOML and end");
  }
  if (argc == 2 && std::string(argv[1]) == "--help-markdown") {
    std::fputs(fields_markdown(line.fields).c_str(), stdout);
    return 0;
  }
  Values args = Normalizer(line).run(argc, argv);
  std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
  try {
    app.parse(args);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& e) {
    fail(ErrorKind::usage, "{}; see {} --help", e.what(), line.name);
  }
  apply(line, said);
  if (said.print_config) {
    std::fputs(write_toml(line.fields).c_str(), stdout);
    return 0;
  }
  for (const std::string& name : line.required)
    if (field_text(*find_field(line.fields, name)).empty())
      fail(ErrorKind::usage, "--{} is needed ({}); see {} --help", name, find_field(line.fields, name)->help,
           line.name);
  return std::nullopt;
}

}  // namespace rw
