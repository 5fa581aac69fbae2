// A deterministic mutation driver: `fuzz_one` of the program's entry gets every input of the corpus as it is, then
// mutants of them. A mutant is a pure function of (seed, run), so a failure repeats with the same numbers; and the
// input of the run under way lies in a memory-mapped file, where it outlives any crash.
//
//   PROGRAM [--runs N] [--seed S] [--first-run K] [--seconds MAX] [--hang-seconds H] [--last FILE] --corpus PLACE
//   PROGRAM --replay FILE...
// A place is a folder or a file; it may repeat.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" void fuzz_one(const uint8_t* data, size_t size);

// A huge count in an input should show up as a thrown std::bad_alloc, not as a machine without memory.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=2048:detect_leaks=0:handle_abort=1";
}

namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr char kLastMark[8] = {'F', 'U', 'Z', 'Z', 'L', 'A', 'S', 'T'};

// The input of the run under way: mark, size, bytes.
class LastInput {
 public:
  explicit LastInput(const std::string& path) : path_(path) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, kFileBytes) != 0) {
      std::perror(path.c_str());
      std::exit(2);
    }
    map_ = static_cast<char*>(mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    if (map_ == MAP_FAILED) {
      std::perror(path.c_str());
      std::exit(2);
    }
    std::memcpy(map_, kLastMark, sizeof kLastMark);
  }
  LastInput(const LastInput&) = delete;
  LastInput& operator=(const LastInput&) = delete;
  ~LastInput() {  // no crash: nothing to keep
    munmap(map_, kFileBytes);
    unlink(path_.c_str());
  }
  void keep(const std::string& input) {
    const uint64_t size = input.size();
    std::memcpy(map_ + 8, &size, 8);
    std::memcpy(map_ + 16, input.data(), input.size());
  }

 private:
  static constexpr size_t kFileBytes = 16 + 2 * kMaxBytes;
  std::string path_;
  char* map_;
};

class Random {
 public:
  Random(uint64_t seed, uint64_t run) : state_(seed * 0x9E3779B97F4A7C15u + run * 0xD1B54A32D192ED03u + 1) {}
  uint64_t bits() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(bits() % n); }
  template <typename T, size_t N>
  const T& of(const T (&items)[N]) {
    return items[below(N)];
  }

 private:
  uint64_t state_;
};

constexpr const char* kNumbers[] = {"0",
                                    "1",
                                    "-1",
                                    "2",
                                    "7",
                                    "127",
                                    "128",
                                    "255",
                                    "256",
                                    "65535",
                                    "65536",
                                    "2147483647",
                                    "2147483648",
                                    "-2147483648",
                                    "4294967295",
                                    "4294967296",
                                    "1099511627776",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "9223372036854775808",
                                    "18446744073709551615",
                                    "18446744073709551616",
                                    "1e18",
                                    "1e308",
                                    "1e999",
                                    "-1e400",
                                    "0.5",
                                    "1e-320",
                                    "3.0",
                                    "00",
                                    "1.",
                                    "NaN",
                                    ""};
constexpr const char* kWords[] = {
    "null",    "true",    "false", "{}",        "[]",  "\"\"",   "[[",           "{\"", "\"",       "\\",
    "\\u0000", "\\ud800", ",",     ":",         "}",   "]",      "\n",           "//",  "\xff\xfe", "\xf0\x9f\x99\x82",
    "(",       ")",       "*",     "{1,65535}", "(?=", "\\p{L}", "<|endoftext|>"};
constexpr int64_t kIntegers[] = {0,
                                 1,
                                 -1,
                                 2,
                                 8,
                                 255,
                                 256,
                                 32767,
                                 65535,
                                 65536,
                                 INT32_MAX,
                                 int64_t{1} << 31,
                                 UINT32_MAX,
                                 int64_t{1} << 32,
                                 int64_t{1} << 40,
                                 INT64_MAX,
                                 INT64_MIN,
                                 INT64_MAX - 7};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void replace_number(std::string& s, Random& r) {
  for (size_t tries = 0, i = r.below(s.size()); tries < s.size(); ++tries, i = (i + 1) % s.size()) {
    if (!is_digit(s[i])) continue;
    size_t begin = i, end = i;
    while (begin > 0 && is_digit(s[begin - 1])) --begin;
    while (end < s.size() && is_digit(s[end])) ++end;
    s.replace(begin, end - begin, r.of(kNumbers));
    return;
  }
}

// A stretch between two JSON separators: a key, a value, or several.
void move_token(std::string& s, const std::string& from, Random& r) {
  const auto stretch = [&](const std::string& text) {
    const size_t at = r.below(text.size());
    const size_t begin = std::min(text.find_first_of("\",:{}[]", at), text.size());
    const size_t end = std::min(text.find_first_of("\",:{}[]", begin + 1 + r.below(20)), text.size());
    return std::pair{begin, end - std::min(begin, end)};
  };
  const auto [begin, length] = stretch(s);
  const auto [other_begin, other_length] = stretch(from);
  s.replace(begin, length, r.below(3) == 0 ? "" : from.substr(other_begin, other_length));
}

void overwrite(std::string& s, size_t at, const void* bytes, size_t n) {
  if (at < s.size()) std::memcpy(s.data() + at, bytes, std::min(n, s.size() - at));
}

void mutate_once(std::string& s, const std::string& other, Random& r) {
  const size_t at = r.below(s.size() + 1), length = r.below(1 + r.below(64));
  const char byte = static_cast<char>(r.bits());
  const int64_t integer = r.of(kIntegers);
  switch (r.below(14)) {
    case 0:
      if (at < s.size()) s[at] = static_cast<char>(s[at] ^ 1 << r.below(8));
      break;
    case 1: overwrite(s, at, &byte, 1); break;
    case 2: s.insert(at, 1 + length, byte); break;
    case 3: s.erase(at, 1 + length); break;
    case 4: s.insert(at, s.substr(r.below(s.size() + 1), 1 + length)); break;
    case 5: overwrite(s, at, &integer, size_t{1} << r.below(4)); break;
    case 6: overwrite(s, at / 8 * 8, &integer, 8); break;
    case 7: s.insert(at, r.of(kWords)); break;
    case 8: s.replace(at, std::min(length, s.size() - at), r.of(kWords)); break;
    case 9: s.resize(at); break;
    case 10:
      s = s.substr(0, at) + other.substr(std::min(other.size(), r.below(2) == 0 ? at : r.below(other.size() + 1)));
      break;
    case 11: move_token(s, other, r); break;
    default: replace_number(s, r); break;
  }
}

std::string mutant(const std::vector<std::string>& corpus, uint64_t seed, uint64_t run) {
  Random r(seed, run);
  std::string s = corpus[r.below(corpus.size())];
  const std::string& other = corpus[r.below(corpus.size())];
  // Mostly few changes, so that the rest still parses and the change is reached.
  for (size_t n = 1 + (r.below(3) == 0 ? r.below(8) : 0); n > 0; --n) mutate_once(s, other, r);
  if (s.size() > kMaxBytes) s.resize(kMaxBytes);
  return s;
}

std::string read_input(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (bytes.size() < 16 || std::memcmp(bytes.data(), kLastMark, sizeof kLastMark) != 0) return bytes;
  uint64_t size = 0;
  std::memcpy(&size, bytes.data() + 8, 8);
  return bytes.substr(16, size);
}

std::vector<std::string> read_corpus(const std::vector<std::string>& places) {
  std::vector<std::filesystem::path> files;
  for (const std::string& place : places) {
    if (!std::filesystem::is_directory(place)) {
      files.push_back(place);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(place))
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // the order of a folder is not the same everywhere, and runs must repeat
  std::vector<std::string> corpus;
  for (const auto& file : files) corpus.push_back(read_input(file).substr(0, kMaxBytes));
  return corpus;
}

void run_input(const std::string& input) {
  // A copy of exactly its size on the heap: a read past the end is seen.
  std::vector<uint8_t> exact(input.begin(), input.end());
  fuzz_one(exact.data(), exact.size());
}

void hang(int) {
  constexpr char message[] = "fuzz: one input takes too long\n";
  (void)!write(STDERR_FILENO, message, sizeof message - 1);
  std::abort();
}

struct Options {
  uint64_t runs = 100000, seed = 1, first_run = 0;
  double seconds = 1e9;
  unsigned hang_s = 30;
  std::string last = "fuzz-last.bin";
  bool replay = false;
  std::vector<std::string> places;
};

Options read_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) {
        std::fprintf(stderr, "%s: expected a value\n", arg.c_str());
        std::exit(2);
      }
      return argv[++i];
    };
    if (arg == "--runs") o.runs = std::strtoull(value(), nullptr, 10);
    else if (arg == "--seed") o.seed = std::strtoull(value(), nullptr, 10);
    else if (arg == "--first-run") o.first_run = std::strtoull(value(), nullptr, 10);
    else if (arg == "--seconds") o.seconds = std::strtod(value(), nullptr);
    else if (arg == "--hang-seconds") o.hang_s = static_cast<unsigned>(std::strtoul(value(), nullptr, 10));
    else if (arg == "--corpus") o.places.push_back(value());
    else if (arg == "--last") o.last = value();
    else if (arg == "--replay") o.replay = true;
    else o.places.push_back(arg);
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = read_options(argc, argv);
  const std::vector<std::string> corpus = read_corpus(o.places);
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz: expected a corpus (files or folders), found none\n");
    return 2;
  }
  std::signal(SIGALRM, hang);
  if (o.replay) {
    for (const std::string& input : corpus) run_input(input);
    std::printf("replayed %zu inputs\n", corpus.size());
    return 0;
  }
  LastInput last(o.last);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto run = [&](const std::string& input) {
    last.keep(input);
    alarm(o.hang_s);
    run_input(input);
  };
  for (const std::string& input : corpus) run(input);
  uint64_t done = 0;
  for (; done < o.runs && elapsed() < o.seconds; ++done) run(mutant(corpus, o.seed, o.first_run + done));
  alarm(0);
  std::printf("{\"runs\": %llu, \"errors\": 0, \"seed\": %llu, \"corpus\": %zu, \"seconds\": %.1f}\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(o.seed), corpus.size(), elapsed());
  return 0;
}
