#include "libcore/spec/cluster_spec.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/rng.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

const fs::path kProfiles = fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "configs" / "clusters";

std::vector<fs::path> profiles() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(kProfiles)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// The smallest file that says all that must be said, in lines that tests change.
const char* const kSmall = R"(name = "small"
[device.gpu]
memory = "80Gi"
peak-bf16 = 989e12
memory-bandwidth = 3.35e12
[device.old]
memory = 42_949_672_960
peak-f32 = 19.5e12
memory-bandwidth = 1555e9
[[node]]
device = "gpu"
count = 3
devices = 8
link-bandwidth = 450e9
nic-bandwidth = 50e9
[[node.collective]]
kind = "all_reduce"
ranks = 8
segments = [[0, 16e-6, 109e9], [8000000, 58e-6, 259e9]]
[[node]]
name = "second"
device = "old"
count = 1
devices = 5
link-bandwidth = 1
nic-bandwidth = 1e9
[network]
oversubscription = 2
rails = true
[[network.collective]]
kind = "send"
ranks = 2
segments = [[0, 1e-5, 48_000_000_000]]
provenance = "measured"
)";

std::string with(const std::string& line, const std::string& instead, std::string text = kSmall) {
  const size_t at = text.find(line);
  REQUIRE(at != std::string::npos);
  return text.replace(at, line.size(), instead);
}

std::string refusal(const std::string& text) {
  try {
    parse_cluster_spec(text, "c.toml");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    return e.what();
  }
  FAIL("accepted: " << text);
  return {};
}

void check_mentions(const std::string& message, const std::vector<std::string>& parts) {
  CAPTURE(message);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

TEST_CASE("a cluster file is read") {
  const ClusterSpec c = parse_cluster_spec(kSmall, "c.toml");
  CHECK(c.name == "small");
  REQUIRE(c.devices.size() == 2);
  CHECK(c.devices[0].name == "gpu");
  CHECK(c.devices[0].memory == int64_t{80} << 30);
  CHECK(c.devices[0].peak_bf16 == 989e12);
  CHECK(c.devices[0].peak_f16 == 0);
  CHECK(c.devices[1].memory == int64_t{40} << 30);
  REQUIRE(c.nodes.size() == 2);
  CHECK(c.nodes[0].name == "gpu");
  CHECK(c.nodes[1].name == "second");
  CHECK(c.node_count() == 4);
  CHECK(c.device_count() == 3 * 8 + 5);
  CHECK(c.device_of(c.nodes[1]).name == "old");
  REQUIRE(c.nodes[0].collectives.size() == 1);
  const std::vector<LinkSegment>& lines = c.nodes[0].collectives[0].segments;
  REQUIRE(lines.size() == 2);
  CHECK(lines[1] == LinkSegment{.from_bytes = 8000000, .alpha = 58e-6, .bandwidth = 259e9});
  CHECK(c.nodes[0].collectives[0].provenance == "table");
  CHECK(c.network.rails);
  CHECK(c.network.oversubscription == 2);
  CHECK(c.network.collectives.at(0).kind == "send");
  CHECK(c.network.collectives[0].provenance == "measured");
  CHECK(parse_cluster_spec("[device.a]\nmemory=1\npeak-f32=1\nmemory-bandwidth=1\n[[node]]\ndevice=\"a\"\ndevices=1\n",
                           "dir/alone.toml")
            .name == "alone");
}

TEST_CASE("a written cluster is read back to the same") {
  ClusterSpec c = parse_cluster_spec(kSmall, "c.toml");
  CHECK(parse_cluster_spec(cluster_toml(c), "c.toml") == c);
  c.name = "quotes \" and \\ and\nlines";
  c.devices[0].launch = 1.0 / 3e6;
  c.devices[0].gemm_fraction = 0.1 + 0.2;
  c.devices[0].memory = (int64_t{80} << 30) - 1;
  c.nodes[0].collectives[0].segments[1].alpha = 1.2345678901234567e-5;
  c.nodes[1].link_domain = 5;
  c.storage_bandwidth = 1e17;
  c.mtbf_hours = 1e-3;
  CHECK(parse_cluster_spec(cluster_toml(c), "c.toml") == c);
}

TEST_CASE("all profiles are read by name and written back") {
  const char* set = std::getenv("RANKWRIGHT_CONFIGS");
  const std::string before = set == nullptr ? "" : set;
  REQUIRE(setenv("RANKWRIGHT_CONFIGS", kProfiles.parent_path().c_str(), 1) == 0);
  CHECK(profiles().size() >= 11);
  for (const fs::path& file : profiles()) {
    CAPTURE(file.string());
    const ClusterSpec c = load_cluster_spec(file.stem());
    CHECK(c == load_cluster_spec(file));
    CHECK(parse_cluster_spec(cluster_toml(c), c.where) == c);
    for (const DeviceType& d : c.devices) {
      // A data sheet's exact "Gi" or nvidia-smi's MiB; a device that streams its memory in 5 ms to 2 s.
      CHECK(d.memory % (1 << 20) == 0);
      CHECK(static_cast<double>(d.memory) / d.memory_bandwidth > 5e-3);
      CHECK(static_cast<double>(d.memory) / d.memory_bandwidth < 2);
      CHECK(d.peak_bf16 >= d.peak_f32);
    }
  }
  try {
    load_cluster_spec("h100-sxn");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    check_mentions(e.what(), {"h100-sxn", "did you mean h100-sxm?", "known names: a100-40, "});
  }
  setenv("RANKWRIGHT_CONFIGS", before.c_str(), 1);  // empty is as good as unset
}

TEST_CASE("every number of a profile says where it comes from") {
  for (const fs::path& file : profiles()) {
    std::istringstream text(read_file(file));
    std::string line, table;
    bool has_source = false;  // of the collectives: a comment above the first of a node
    while (std::getline(text, line)) {
      CAPTURE(file.string());
      CAPTURE(line);
      if (line.empty()) continue;
      if (line[0] == '#') has_source = true;
      if (line[0] == '[') table = line;
      if (line == "[[node]]") has_source = false;
      const size_t equals = line.find(" = ");
      if (line[0] == '#' || line[0] == '[' || equals == std::string::npos) continue;
      const bool is_number = std::isdigit(static_cast<unsigned char>(line[equals + 3])) || line.find("i\"") < 60;
      if (table.find("collective") != std::string::npos) CHECK(has_source);
      else if (is_number) CHECK(line.find("  # ") != std::string::npos);
    }
  }
}

TEST_CASE("the documentation names every key") {
  const std::string text = read_file(fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "docs" / "clusters.md");
  ClusterSpec c;
  DeviceType d;
  NodeType n;
  NetworkSpec w;
  CollectiveFit f;
  for (const FieldList& list : {fields(c), fields(d), fields(n), fields(w), fields(f)})
    for (const Field& field : list) {
      CAPTURE(field.name);
      CHECK(text.find("`" + field.name + "`") != std::string::npos);
    }
}

TEST_CASE("what a profile must agree on") {
  // Bidirectional NVLink of the data sheets (GB/s), memory bandwidth over bf16 peak (the ridge, FLOP a byte).
  const ClusterSpec a100 = parse_cluster_spec(read_file(kProfiles / "a100-80.toml"), "a");
  const ClusterSpec h100 = parse_cluster_spec(read_file(kProfiles / "h100-sxm.toml"), "h");
  CHECK(2 * a100.nodes[0].link_bandwidth == 600e9);
  CHECK(2 * h100.nodes[0].link_bandwidth == 900e9);
  CHECK(a100.devices[0].peak_bf16 / a100.devices[0].memory_bandwidth == doctest::Approx(153).epsilon(0.01));
  CHECK(h100.devices[0].peak_bf16 / h100.devices[0].memory_bandwidth == doctest::Approx(295).epsilon(0.01));
  // 54 days * 24 h * 16,384 / 419.
  CHECK(h100.devices[0].mtbf_hours == doctest::Approx(54.0 * 24 * 16384 / 419).epsilon(0.001));
  const ClusterSpec both = parse_cluster_spec(read_file(kProfiles / "a100-h100.toml"), "b");
  CHECK(both.devices[0] == a100.devices[0]);
  CHECK(both.devices[1] == h100.devices[0]);
  CHECK(both.nodes[1].collectives == h100.nodes[0].collectives);
}

TEST_CASE("a missing or zero number names its place and what to write") {
  check_mentions(refusal(with("memory = \"80Gi\"\n", "")), {"c.toml:2: [device.gpu] memory", "found none", "\"80Gi\""});
  check_mentions(refusal(with("3.35e12", "0")), {"c.toml:5: [device.gpu] memory-bandwidth", "found 0", "3.35e12"});
  check_mentions(refusal(with("peak-f32 = 19.5e12\n", "")),
                 {"c.toml:6: [device.old] peak-bf16", "peak-f32", "found none"});
  check_mentions(refusal(with("link-bandwidth = 450e9\n", "")), {"c.toml:10: [node] link-bandwidth", "450e9"});
  check_mentions(refusal(with("nic-bandwidth = 1e9", "nic-bandwidth = 0.0")),
                 {"c.toml:26: [node] nic-bandwidth", "several nodes", "found 0", "50e9"});
  check_mentions(refusal(with("device = \"gpu\"\n", "")), {"[node] device", "gpu, old", "found none"});
  check_mentions(refusal(with("device = \"old\"", "device = \"olt\"")),
                 {"c.toml:22: [node] device", "gpu, old", "found \"olt\"", "did you mean \"old\"?"});
  check_mentions(refusal("name = \"x\"\n"), {"c.toml", "[device.NAME]", "found none"});
  check_mentions(refusal("[device.a]\nmemory=1\npeak-f32=1\nmemory-bandwidth=1\n"), {"[[node]]", "device = \"a\""});
  check_mentions(refusal(with("devices = 5", "devices = 5\nlink-domain = 2")),
                 {"link-domain", "divisor", "5", "found 2"});
  check_mentions(refusal(with("devices = 8", "devices = 8\nlink-domain = 2")), {"pcie-bandwidth", "found none"});
  check_mentions(refusal(with("memory = \"80Gi\"", "memory = \"80Gi\"\nreserve = \"80Gi\"")), {"[device.gpu] reserve"});
}

TEST_CASE("unknown keys, wrong types and bounds") {
  check_mentions(refusal(with("memory-bandwidth = 3.35e12", "memory-bandwith = 3.35e12")),
                 {"c.toml:5: [device.gpu]: unknown key \"memory-bandwith\"; did you mean \"memory-bandwidth\"?"});
  check_mentions(refusal(with("[network]", "[netwrk]")), {"unknown key \"netwrk\"; did you mean \"network\"?"});
  check_mentions(refusal(with("kind = \"all_reduce\"", "kind = \"allreduce\"")),
                 {"c.toml:17: [node.collective]: kind", "all_reduce, all_gather", "allreduce"});
  check_mentions(refusal(with("peak-bf16 = 989e12", "peak-bf16 = \"989e12\"")),
                 {"c.toml:4: [device.gpu]: peak-bf16", "a number"});
  check_mentions(refusal(with("count = 3", "count = 0")), {"[node]: count", "from 1"});
  check_mentions(refusal(with("count = 3", "count = 2.5")), {"[node]: count", "a whole number", "2.5"});
  check_mentions(refusal(with("3.35e12", "inf")), {"memory-bandwidth", "inf"});
  check_mentions(refusal(with("oversubscription = 2", "oversubscription = 0.5")), {"[network]: oversubscription"});
  for (const char* fraction : {"gemm-fraction", "attention-fraction", "memory-fraction", "link-fraction"})
    for (const char* value : {"0", "1.0001", "-0.5"}) {
      const std::string message =
          refusal(with("peak-bf16 = 989e12", fmt::format("peak-bf16 = 1\n{} = {}", fraction, value)));
      check_mentions(message, {"[device.gpu]: ", fraction, "to 1"});
    }
  check_mentions(refusal("network = 3\n"), {"c.toml:1: network", "a table", "3"});
  check_mentions(refusal(with("[[0, 1e-5, 48_000_000_000]]", "7")),
                 {"[network.collective]: segments", "an array", "7"});
  check_mentions(refusal(with("[device.gpu]", "[device.\"g u\"]")), {"letters, digits", "g u"});
  check_mentions(refusal("device = [1]\n"), {"c.toml:1: device", "[device.NAME]"});
  check_mentions(
      refusal("[[network]]\n[[network]]\n" +
              with("[network]\noversubscription = 2\nrails = true\n[[network.collective]]\nkind = \"send\"\nranks = "
                   "2\nsegments = [[0, 1e-5, 48_000_000_000]]\nprovenance = \"measured\"\n",
                   "")),
      {"one table [network]", "found 2"});
}

TEST_CASE("names and segments") {
  check_mentions(refusal(with("name = \"second\"", "name = \"gpu\"")),
                 {"c.toml:21: [node] name", "\"gpu\" stands twice", "gpu-b"});
  check_mentions(refusal(with("[device.old]", "[device.gpu]")), {"c.toml:6"});
  const std::string segments = "[[0, 16e-6, 109e9], [8000000, 58e-6, 259e9]]";
  const std::string kPlace = "c.toml:19: [node.collective] segments";
  for (const char* bad :
       {"[]", "[[1, 16e-6, 109e9]]", "[[0, 16e-6, 109e9], [0, 58e-6, 259e9]]", "[[0, 1, 1], [9, 1, 1], [8, 1, 1]]",
        "[[0, -1e-6, 109e9]]", "[[0, 16e-6, 0]]", "[[0.5, 16e-6, 109e9]]", "[[0, 16e-6]]", "[0, 16e-6, 109e9]",
        "[[0, \"16e-6\", 109e9]]", "[[0, nan, 109e9]]", "[[0,1,1],[1,1,1],[2,1,1],[3,1,1]]"}) {
    CAPTURE(bad);
    check_mentions(refusal(with(segments, bad)), {kPlace});
  }
  check_mentions(refusal(with("ranks = 8", "ranks = 9")),
                 {"c.toml:18: [node.collective] ranks", "8 devices", "found 9"});
  check_mentions(refusal(with("ranks = 8\n", "")), {"[node.collective] ranks", "found none"});
  check_mentions(refusal(with("kind = \"all_reduce\"\n", "")), {"[node.collective] kind", "found none"});
  const std::string fit = "[[node.collective]]\nkind = \"all_reduce\"\nranks = 8\nsegments = [[0, 1, 1]]\n";
  check_mentions(refusal(with("[[node.collective]]\n", fit + "[[node.collective]]\n")),
                 {"all_reduce over 8 ranks stands twice"});
}

TEST_CASE("the number of nodes is set in proportion") {
  ClusterSpec c = parse_cluster_spec(kSmall, "c.toml");  // 3 and 1
  set_node_count(c, 12);
  CHECK(c.nodes[0].count == 9);
  CHECK(c.nodes[1].count == 3);
  CHECK_THROWS_WITH_AS(set_node_count(c, 6), doctest::Contains("9 of gpu, 3 of second"), Error);
  CHECK(c.node_count() == 12);
  CHECK_THROWS_AS(set_node_count(c, 0), Error);
  CHECK_THROWS_AS(set_node_count(c, kMostNodes + 1), Error);
  const std::string alone = "[device.a]\nmemory=1\npeak-f32=1\nmemory-bandwidth=1\n[[node]]\ndevice=\"a\"\ndevices=1\n";
  ClusterSpec one = parse_cluster_spec(alone, "alone.toml");
  set_node_count(one, 1);
  CHECK_THROWS_WITH_AS(set_node_count(one, 7), doctest::Contains("nic-bandwidth"), Error);
  one.nodes[0].nic_bandwidth = 1;
  set_node_count(one, 7);
  CHECK(one.nodes[0].count == 7);
}

TEST_CASE("damaged files end in an error, never otherwise") {
  const std::string whole = read_file(kProfiles / "a100-h100.toml");
  const std::string alphabet = "\"[]{}=.,#\n\\'0-9eE_ infatr\x80\xff";
  uint64_t counter = 0;
  int64_t accepted = 0, refused = 0;
  const auto next = [&](size_t below) { return static_cast<size_t>(random_bits(7, counter++) % below); };
  for (int round = 0; round < 600; ++round) {
    std::string text = whole;
    if (round % 3 == 0) text.resize(next(text.size()));
    for (size_t changes = round % 3 == 1 ? 1 : next(8); changes > 0; --changes) {
      if (text.empty()) break;
      const size_t at = next(text.size());
      switch (next(3)) {
        case 0: text[at] = alphabet[next(alphabet.size())]; break;
        case 1: text.erase(at, next(40)); break;
        default: text.insert(at, text.substr(next(text.size()), next(60)));
      }
    }
    try {
      const ClusterSpec c = parse_cluster_spec(text, "damaged.toml");
      CHECK(parse_cluster_spec(cluster_toml(c), c.where) == c);
      ++accepted;
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find("damaged.toml") == 0);
      ++refused;
    }
  }
  CHECK(accepted > 20);  // a changed comment
  CHECK(refused > 200);
}

}  // namespace
}  // namespace rw

TEST_CASE("cluster_spec: rates near nothing are slips of units, not machines") {
  const std::string good = rw::cluster_toml(rw::load_cluster_spec("cpu-2core"));
  for (const char* key : {"peak-f32", "memory-bandwidth", "link-bandwidth"}) {
    std::string text = good;
    const size_t at = text.find(std::string("\n") + key + " = ") + 1, end = text.find('\n', at);
    text.replace(at, end - at, std::string(key) + " = 1e-308");
    CHECK_THROWS_WITH_AS(rw::parse_cluster_spec(text, "tiny.toml"), doctest::Contains(key), rw::Error);
  }
}
