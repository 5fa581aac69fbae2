// What a template may not do: run for ever, take all memory, leave its sandbox, or crash us.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/text/jinja/jinja.h"

using namespace rw;

namespace {

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const jinja::Limits& limits = {}) {
  return jinja::Template(source, "t").render({.variables = variables, .limits = limits});
}

std::string error_of(const std::string& source, const Json& variables = Json::object(),
                     const jinja::Limits& limits = {}) {
  try {
    render(source, variables, limits);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return {};
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("jinja: an error names the template and the line of the cause") {
  CHECK(error_of("a\n\n{{ x.y }}") == "t: line 3: 'x' is undefined");
  CHECK(error_of("a\n{% if %}") == "t: line 2: expected an expression, found %}");
  CHECK(error_of("{% for x in [1] %}\n{{ raise_exception('Be\\nquiet') }}{% endfor %}") == "t: line 2: Be\nquiet");
  CHECK(error_of("{% macro f() %}\n{{ 1 / 0 }}\n{% endmacro %}\n\n{{ f() }}") == "t: line 2: division by zero");
  CHECK(error_of("{{ [1,\n2,\n3 % 'a'] }}").starts_with("t: line 3:"));
  CHECK(mentions(error_of("{% include 'x' %}"), "unsupported tag 'include'"));
}

TEST_CASE("jinja: what runs too long ends with an error") {
  const std::string loops = repeated("{% for i in range(100000) %}", 4) + "x" + repeated("{% endfor %}", 4);
  CHECK(mentions(error_of(loops), "steps"));
  const std::string empty = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
  CHECK(mentions(error_of(empty), "steps"));
  CHECK(
      mentions(error_of("{% set a = 'a' * 1000000 %}{% for i in range(100000) %}{{ 'x' in a }}{% endfor %}"), "steps"));
  // A search whose every position nearly matches.
  const std::string slow = "{% set a = 'a' * 2000000 %}{{ (a + a).find(a + 'b') }}";
  CHECK(mentions(error_of(slow), "steps"));
  CHECK(mentions(error_of("{{ (range(100000) | list * 100) | unique | list | length }}"), "t: line 1"));
}

TEST_CASE("jinja: what grows too large ends with an error") {
  for (
      const std::string source : {
          "{{ 'a' * 1000000000000 }}",
          "{{ [0] * 1000000000000 }}",
          "{{ 'a' * 9223372036854775807 }}",
          "{{ 'x'.center(999999999999) }}",
          "{{ '%999999999d' % 1 }}",
          "{{ '%.999999999d' % 1 }}",
          "{{ [1] | tojson(indent=99999999999) }}",
          "{{ 'a' | indent(99999999999) }}",
          "{{ [1] | batch(99999999999, 'x') | list }}",
          "{{ [1] | slice(99999999999) | list }}",
          "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
          "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
          "{% set ns = namespace(s='ab') %}{% for i in range(40) %}{% set ns.s = ns.s.replace('', ns.s) %}{% endfor %}",
          "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
          "{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}",
      }) {
    CAPTURE(source);
    CHECK(!error_of(source, Json::object(), {.bytes = 32 << 20}).empty());
  }
  CHECK(mentions(error_of("{% for i in range(1000) %}{{ 'a' * 1000000 }}{% endfor %}"), "bytes"));
  CHECK(mentions(error_of("{{ range(1000000000000) }}"), "100000"));
  CHECK(
      mentions(error_of("{% for i in range(99) %}abcdefgh{% endfor %}", Json::object(), {.output_bytes = 100}), "100"));
  CHECK(mentions(error_of("{{ s ~ s }}", {{"s", std::string(1000, 'x')}}, {.bytes = 5000}), "5000"));
  // Memory that is let go counts no more.
  CHECK(render("{% for i in range(400) %}{% set s = 'a' * 1000000 %}{% endfor %}", Json::object(), {.steps = 1 << 30})
            .empty());
}

TEST_CASE("jinja: what nests too deeply ends with an error") {
  CHECK(mentions(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "deeper"));
  CHECK(mentions(error_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), "deeper"));
  CHECK(
      mentions(error_of("{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}"),
               "deeper"));
  for (const std::string part : {"(", "[", "{1:", "-", "not ", "1 if 1 else ", "x[", "x(", "'a'~("})
    CHECK(!error_of("{{ " + repeated(part, 100'000)).empty());
  for (const std::string part : {"+1", ".a", "|upper", "[0]", "()", " or 1", "**2", "-1"})
    CHECK(mentions(error_of("{{ 1" + repeated(part, 100'000) + " }}"), "deeply"));
  CHECK(mentions(error_of(repeated("{% if 1 %}", 100'000)), "deeply"));
  CHECK(!error_of(repeated("{% for x in y %}", 100'000)).empty());
  CHECK(render("{{ 1" + repeated(" ~ 1", 10'000) + " }}").size() == 10'001);
  CHECK(render("{{ [" + repeated("1, ", 10'000) + "] | length }}") == "10000");
}

TEST_CASE("jinja: values that hold each other in long chains or circles are let go") {
  for (const std::string source : {
           "{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.l = [ns] %}",
           "{% set ns = namespace() %}{% for i in range(50000) %}{% set next = namespace(last=ns.x) %}{% set ns.x = "
           "next %}{% endfor %}",
           "{% set ns = namespace() %}{% for i in range(50000) %}{% for x in [ns.l] %}{% set ns.l = loop %}{% endfor "
           "%}{% endfor %}",
           "{% set ns = namespace() %}{% for i in range(50000) %}{% set last = ns.l %}{% for x in [1] %}{% set ns.l = "
           "loop %}{% endfor %}{% endfor %}",
           "{% set ns = namespace() %}{% macro m() %}{% set ns.c = caller %}{% endmacro %}{% for i in range(20000) "
           "%}{% set last = ns.c %}{% call m() %}x{% endcall %}{% endfor %}",
           "{% set ns = namespace() %}{% for i in range(20000) %}{% set last = ns.m %}{% macro f() %}{{ last }}{% "
           "endmacro %}{% set ns.m = f %}{% endfor %}",
       }) {
    CAPTURE(source);
    CHECK(error_of(source).empty());
  }
  for (const std::string made :
       {"joiner(ns.j)", "cycler(ns.j)", "{'a': ns.j}.items", "[ns.j] | map('string')", "cycler(ns.j).next"}) {
    CAPTURE(made);
    const std::string source =
        "{% set ns = namespace(j='') %}{% for i in range(50000) %}{% set ns.j = " + made + " %}{% endfor %}";
    const std::string error = error_of(source);
    CHECK((error.empty() || mentions(error, "deeper")));
  }
  CHECK(!error_of("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}").empty());
}

TEST_CASE("jinja: nothing in the sandbox changes the variables or leads out of it") {
  const Json variables = {{"l", {1, 2}}, {"d", {{"a", 1}}}};
  for (const std::string source :
       {"{{ l.append(3) }}", "{{ l.clear() }}", "{{ l.__class__.__mro__ }}", "{{ d.update({}) }}",
        "{{ d.setdefault('b', 1) }}", "{{ ''.__class__() }}", "{{ range.__globals__['x'] }}", "{{ self.__init__ }}",
        "{{ cycler.__init__.__globals__.os }}"}) {
    CAPTURE(source);
    CHECK(!error_of(source, variables).empty());
  }
  CHECK(render("{{ l }}{{ d }}", variables) == "[1, 2]{'a': 1}");
}

TEST_CASE("jinja: bytes that are no text, integers beyond 64 bits") {
  CHECK(render("a\xFF\xC3{{ 'x\xE4\xBD' }}") == "a\xEF\xBF\xBD\xEF\xBF\xBDx\xEF\xBF\xBD");
  CHECK(render("{{ s }}|{{ s | length }}", {{"s", "\xFFz"}}) == "\xEF\xBF\xBDz|2");
  CHECK(mentions(error_of("{{ 9223372036854775807 + 1 }}"), "64 bits"));
  CHECK(mentions(error_of("{{ 10 ** 19 }}"), "64 bits"));
  CHECK(mentions(error_of("{{ 99999999999999999999 }}"), "64 bits"));
  CHECK(mentions(error_of("{{ '\\ud800' }}"), "Unicode"));
  CHECK(render("{{ n }}", {{"n", UINT64_MAX}}) == "1.8446744073709552e+19");
}

TEST_CASE("jinja: a template renders the same in any number of threads") {
  const jinja::Template shared(
      "{% set x = [1, 'a'] %}{% macro f(y) %}{{ y }}{% endmacro %}{% for i in n %}{{ f(i) ~ x }}{% endfor %}", "t");
  const Json variables = {{"n", {1, 2, 3}}};
  const std::string expected = shared.render({.variables = variables});
  CHECK(expected == "1[1, 'a']2[1, 'a']3[1, 'a']");
  std::vector<int> same(4, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) same[static_cast<size_t>(t)] += shared.render({.variables = variables}) == expected;
    });
  for (std::thread& t : threads) t.join();
  for (const int n : same) CHECK(n == 200);
}
