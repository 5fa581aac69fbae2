// Text of real hosts, whole, cut off anywhere, and mangled.
#include "libcore/telemetry/host_counters.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libcore/base/rng.h"

using namespace rw;

namespace {

const std::string kStat =
    "cpu  1681303 52503 205462 567298 2300 7 875 3996 11 13\n"
    "cpu0 831115 27661 100071 294663 1007 0 118 2006 0 0\n"
    "cpu1 850188 24841 105391 272635 1293 0 756 1990 0 0\n"
    "intr 12345 0 0\nctxt 9876\nbtime 1764440000\nprocesses 8073\nprocs_running 2\nprocs_blocked 0\n";

const std::string kLoad = "1.17 0.65 1.03 3/95 8073\n";

const std::string kMeminfo =
    "MemTotal:       24684084 kB\nMemFree:        23005196 kB\nMemAvailable:   23932824 kB\nBuffers:           12632 "
    "kB\n"
    "Cached:           930012 kB\nSwapCached:            0 kB\nSwapTotal:       1048576 kB\nSwapFree:         999424 "
    "kB\n"
    "Dirty:               844 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB\n";

const std::string kNetDev =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier "
    "compressed\n"
    "    lo: 29511233207  624189    0    0    0     0          0         0 29511233207  624189    0    0    0     0    "
    "   0 "
    "         0\n"
    "eth0:3297129422   58700    1    2    0     0          0         0  2683409   38576    3    4    0     0       0   "
    "    "
    "   0\n"
    "  br:1: 7 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n";

const std::string kSnmp =
    "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
    "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs "
    "OutSegs "
    "RetransSegs InErrs OutRsts InCsumErrors\n"
    "Tcp: 1 200 120000 -1 13381 980 12289 10 0 682540 661767 674 0 12297 0\n"
    "Udp: InDatagrams NoPorts\nUdp: 5 6\n";

const std::string kDisks =
    "   7       0 loop0 5 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    "   1       0 ram0 5 0 5 0 0 0 0 0 0 0 0\n"
    " 254       0 vda 363144 32915 15832122 270351 343771 135982 119236016 981586 0 108968 1295676 138096 2 102316368 "
    "35511 "
    "42227 8226\n"
    " 254       1 vda1 1 0 8 0 1 0 8 0 0 1 1\n"
    " 259       0 nvme0n1 10 0 100 4 20 0 200 9 0 17 13\n"
    " 259       1 nvme0n1p1 10 0 100 4 20 0 200 9 0 17 13\n"
    " 259       2 nvme0n2 1 0 2 0 1 0 2 0 0 3 1\n"
    "   8       0 sda 1 0 2 0 3 0 4 0 0 5 6\n"
    "   8      16 sda15 1 0 2 0 3 0 4 0 0 5 6\n";

const std::string kStatus =
    "Name:\tdtrain\nVmPeak:\t    3892 kB\nVmHWM:\t    1972 kB\nVmRSS:\t    1970 kB\nThreads:\t2\n";

// Reads every text; what comes out matters less than that it does.
void parse_all(std::string_view text) {
  parse_cpu_ticks(text);
  parse_cpu_count(text);
  parse_load_average(text);
  parse_memory(text);
  parse_interfaces(text);
  parse_tcp_retransmits(text);
  parse_disks(text);
  parse_resident_bytes(text);
  parse_clock_mhz(text);
}

HostCounters host_of(const std::string& stat, const std::string& net, const std::string& snmp,
                     const std::string& disks) {
  HostCounters host;
  host.cpu = parse_cpu_ticks(stat);
  host.cpus = parse_cpu_count(stat);
  host.load = parse_load_average(kLoad);
  host.memory = parse_memory(kMeminfo);
  host.interfaces = parse_interfaces(net);
  host.tcp_retransmits = parse_tcp_retransmits(snmp);
  host.disks = parse_disks(disks);
  return host;
}

}  // namespace

TEST_CASE("real text") {
  CHECK(parse_cpu_ticks(kStat) ==
        CpuTicks{.busy = 1681303 + 52503 + 205462 + 7 + 875, .idle = 567298, .io_wait = 2300, .steal = 3996});
  CHECK(parse_cpu_count(kStat) == 2);
  CHECK(parse_load_average(kLoad) == LoadAverage{.one_minute = 1.17, .running = 3});
  CHECK(parse_memory(kMeminfo) == MemoryBytes{.total = int64_t{24684084} << 10,
                                              .available = int64_t{23932824} << 10,
                                              .dirty = 844 << 10,
                                              .swap_used = (1048576 - 999424) << 10});
  const auto net = parse_interfaces(kNetDev);
  CHECK(net.size() == 3);
  CHECK(net.at("lo") == InterfaceCounters{.received_bytes = 29511233207, .sent_bytes = 29511233207});
  CHECK(
      net.at("eth0") ==
      InterfaceCounters{
          .received_bytes = 3297129422, .sent_bytes = 2683409, .received_dropped = 2, .sent_dropped = 4, .errors = 4});
  CHECK(net.at("br:1") == InterfaceCounters{.received_bytes = 7, .sent_bytes = 9});
  CHECK(parse_tcp_retransmits(kSnmp) == 674);
  const auto disks = parse_disks(kDisks);
  CHECK(disks.size() == 4);  // no partition, loop or RAM device
  CHECK(disks.at("vda") == DiskCounters{.read_bytes = int64_t{15832122} * 512,
                                        .written_bytes = int64_t{119236016} * 512,
                                        .busy_ms = 108968});
  CHECK(disks.at("nvme0n1") == DiskCounters{.read_bytes = 100 * 512, .written_bytes = 200 * 512, .busy_ms = 17});
  CHECK(disks.count("nvme0n2") == 1);
  CHECK(disks.count("sda") == 1);
  CHECK(parse_resident_bytes(kStatus) == 1970 * 1024);
  CHECK(parse_clock_mhz("2400123\n") == doctest::Approx(2400.123));
}

TEST_CASE("an old kernel without MemAvailable, a host without swap") {
  CHECK(!parse_memory("MemTotal: 5 kB\nMemFree: 4 kB\n"));
  CHECK(parse_memory("MemTotal: 5 kB\nMemAvailable: 4 kB\n") == MemoryBytes{.total = 5 << 10, .available = 4 << 10});
}

TEST_CASE("text that is none gives nothing") {
  for (const std::string text : {"",
                                 "\n",
                                 "\n\n\n",
                                 " ",
                                 "cpu",
                                 "cpu ",
                                 "cpu x y",
                                 "cpu 1 2 3",
                                 "cpu 1 2 3 4 5 6 7",
                                 "Tcp:",
                                 "Tcp:\nTcp:",
                                 "Tcp: a\nTcp: 1",
                                 "Tcp: RetransSegs\nTcp: -5",
                                 "Tcp: RetransSegs\nTcp: x",
                                 ":",
                                 " : ",
                                 "eth0:",
                                 "eth0: 1 2 3",
                                 "a b c",
                                 "MemTotal:",
                                 "MemTotal: kB",
                                 "MemTotal: 5",
                                 "MemTotal: 5 MB\nMemAvailable: 5 kB",
                                 "VmRSS: -3 kB",
                                 "1.0 2.0 3.0",
                                 "1.0 2.0 3.0 4",
                                 "x 2.0 3.0 4/5",
                                 "nan 1 1 1/1",
                                 "inf 1 1 1/1",
                                 "-1 1 1 1/1",
                                 "1 0 loop0 1 2 3"}) {
    CAPTURE(text);
    CHECK(!parse_cpu_ticks(text));
    CHECK(parse_cpu_count(text) == 0);
    CHECK(!parse_load_average(text));
    CHECK(!parse_memory(text));
    CHECK(parse_interfaces(text).empty());
    CHECK(!parse_tcp_retransmits(text));
    CHECK(parse_disks(text).empty());
    CHECK(!parse_resident_bytes(text));
    CHECK(!parse_clock_mhz(text));
  }
}

TEST_CASE("counts beyond what fits are no counts") {
  CHECK(!parse_cpu_ticks("cpu 99999999999999999999 1 1 1 1 1 1 1\n"));
  CHECK(!parse_cpu_ticks("cpu 9223372036854775807 1 1 1 1 1 1 1\n"));
  CHECK(!parse_resident_bytes("VmRSS: 9223372036854775807 kB"));
  CHECK(parse_disks("8 0 sda 1 0 9223372036854775807 0 3 0 4 0 0 5 6").empty());
}

TEST_CASE("text cut off at any byte, and mangled text") {
  for (const std::string& text : {kStat, kLoad, kMeminfo, kNetDev, kSnmp, kDisks, kStatus}) {
    for (size_t n = 0; n <= text.size(); ++n) {
      const std::vector<char> exact(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n));  // no byte behind it
      parse_all(std::string_view(exact.data(), exact.size()));
    }
    for (uint64_t i = 0; i < 2000; ++i) {
      std::string mangled = text;
      for (uint64_t k = 0; k < 8; ++k) {
        const uint64_t bits = random_bits(rng_key(7, "mangle"), i * 8 + k);
        mangled[bits % mangled.size()] = static_cast<char>(bits >> 56);
      }
      parse_all(mangled);
    }
  }
}

TEST_CASE("a line: what happened between two moments") {
  const std::string stat = "cpu  1681363 52503 205472 567318 2304 7 875 4002 11 13\ncpu0 1\ncpu1 1\ncpu2 1\n";
  std::string net = kNetDev, snmp = kSnmp, disks = kDisks;
  net.replace(net.find("3297129422"), 10, "3297130422");
  net.replace(net.find("2683409"), 7, "2683500");
  snmp.replace(snmp.find(" 674 "), 5, " 676 ");
  disks.replace(disks.find("15832122"), 8, "15832124");
  disks.replace(disks.find("108968"), 6, "109468");
  HostCounters before = host_of(kStat, kNetDev, kSnmp, kDisks), after = host_of(stat, net, snmp, disks);
  after.resident_bytes = {{17, 4096}, {23, 8192}};
  after.clock_mhz_mean = 2000;
  after.clock_mhz_min = 1500;
  const Json line = resource_line(before, after, 2);
  CHECK(line["interval_s"] == 2);
  CHECK(line["cpu"]["cpus"] == 3);
  CHECK(line["cpu"]["busy"].get<double>() == doctest::Approx(0.70));
  CHECK(line["cpu"]["io_wait"].get<double>() == doctest::Approx(0.04));
  CHECK(line["cpu"]["steal"].get<double>() == doctest::Approx(0.06));
  CHECK(line["load_average"] == 1.17);
  CHECK(line["run_queue"] == 3);
  CHECK(line["memory_bytes"]["total"] == int64_t{24684084} << 10);
  CHECK(line["memory_bytes"]["swap_used"] == 49152 << 10);
  CHECK(line["network"]["eth0"]["received_bytes"] == 1000);
  CHECK(line["network"]["eth0"]["sent_bytes"] == 91);
  CHECK(line["network"]["lo"]["sent_bytes"] == 0);
  CHECK(line["tcp_retransmits"] == 2);
  CHECK(line["disks"]["vda"]["read_bytes"] == 1024);
  CHECK(line["disks"]["vda"]["written_bytes"] == 0);
  CHECK(line["disks"]["vda"]["busy"].get<double>() == doctest::Approx(0.25));
  CHECK(line["clock_mhz"]["min"] == 1500);
  CHECK(line["resident_bytes"]["17"] == 4096);
  CHECK(line["resident_bytes"]["23"] == 8192);
}

TEST_CASE("what one of the moments lacks is left out, and counters that went back count nothing") {
  const HostCounters whole = host_of(kStat, kNetDev, kSnmp, kDisks);
  const Json nothing = resource_line({}, {}, 1);
  CHECK(nothing.size() == 4);  // the interval, and no networks, disks, processes
  CHECK(nothing["network"].empty());
  for (const Json& line : {resource_line({}, whole, 1), resource_line(whole, {}, 1)}) {
    CHECK(!line.contains("cpu"));
    CHECK(!line.contains("tcp_retransmits"));
    CHECK(line["network"].empty());
    CHECK(line["disks"].empty());
  }
  HostCounters later = whole;
  for (auto& [name, i] : later.interfaces) i = {};
  for (auto& [name, d] : later.disks) d = {};
  later.tcp_retransmits = 0;
  later.cpu = CpuTicks{};
  const Json line = resource_line(whole, later, 0);
  CHECK(line["network"]["eth0"]["received_bytes"] == 0);
  CHECK(line["disks"]["vda"]["busy"] == 0);
  CHECK(line["tcp_retransmits"] == 0);
  CHECK(line["cpu"]["busy"] == 0);
}
