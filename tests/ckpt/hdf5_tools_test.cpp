// A rank's file as others see it: h5ls and h5dump of the HDF5 distribution.
#include <doctest/doctest.h>

#include <cstdlib>
#include <sstream>

#include "tests/ckpt/dckpt_tool.h"
#include "tests/ckpt/saves.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct Output {
  int code;
  std::string text;  // both streams
};

Output sh(const std::string& command) {
  const ScratchDir dir;
  const int status = std::system((command + " >" + (dir / "out").string() + " 2>&1").c_str());
  return {WEXITSTATUS(status), read_file(dir / "out")};
}

// Numbers of an h5dump -y, which prints "DATA { 1, 2, 3 }" among other things.
std::vector<double> dumped_numbers(const std::string& text) {
  const size_t at = text.find("DATA {");
  REQUIRE(at != std::string::npos);
  std::string data = text.substr(at + 6, text.find('}', at) - at - 6);
  std::replace(data.begin(), data.end(), ',', ' ');
  std::istringstream in(data);
  std::vector<double> numbers;
  for (double x; in >> x;) numbers.push_back(x);
  return numbers;
}

// The number after a word.
int64_t number_after(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  REQUIRE(at != std::string::npos);
  return std::stoll(text.substr(at + word.size()));
}

// Datasets that h5ls lists and that hold a box of the tensor: NAME, NAME#1, NAME#2.
std::vector<std::string> datasets_of(const std::string& tensor, const std::string& listing) {
  std::vector<std::string> names;
  std::istringstream in(listing);
  for (std::string line; std::getline(in, line);) {
    const std::string name = line.substr(0, line.find(' '));
    if (name.substr(0, name.find('#')) == "/" + tensor) names.push_back(name);
  }
  return names;
}

}  // namespace

TEST_CASE("h5ls and h5dump open the files of a checkpoint and read the same numbers") {
  if (sh("h5ls --version").code != 0 || sh("h5dump --version").code != 0) {
    MESSAGE("skipped: h5ls and h5dump are not installed (Debian: hdf5-tools)");
    return;
  }
  const ScratchDir dir;
  const fs::path step = saves::made_up(dir.path(), 7, 3, 2, 5);
  const Checkpoint checkpoint(step);
  const std::vector<TensorInfo> tensors = layouts::model();
  int64_t n_datasets = 0, n_numbers = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string file = (step / ("rank-0000" + std::to_string(rank) + ".h5")).string();
    const Output listing = sh("h5ls -r " + dckpt_tool::quoted(file));
    INFO(listing.text);
    REQUIRE(listing.code == 0);
    for (size_t k = 0; k < tensors.size(); ++k) {
      for (const std::string& dataset : datasets_of(tensors[k].name, listing.text)) {
        const std::string options = " -y -w 1000000 -m %.9g -d " + dckpt_tool::quoted(dataset) + " ";
        const Output header = sh("h5dump -H -p" + options + dckpt_tool::quoted(file));
        REQUIRE(header.code == 0);
        REQUIRE(saves::has(header.text, "CONTIGUOUS"));
        // The manifest says where each box lies; HDF5 must find it at the same byte.
        const int64_t at = number_after(header.text, "OFFSET ");
        const StoredPiece* piece = nullptr;
        const std::vector<StoredPiece> pieces = checkpoint.pieces(tensors[k].name);
        for (const StoredPiece& p : pieces) {
          if (p.at == at && fs::path(file).filename() == p.file) piece = &p;
        }
        REQUIRE(piece != nullptr);
        const Output dump = sh("h5dump" + options + dckpt_tool::quoted(file));
        REQUIRE(dump.code == 0);
        const std::vector<double> found = dumped_numbers(dump.text);
        // The values of the made-up model are whole numbers, so f32 tells them in any dtype.
        const std::vector<char> bytes =
            layouts::fill({tensors[k].name, DType::f32, tensors[k].shape}, piece->box, 5 + k);
        std::vector<float> expected(bytes.size() / 4);
        std::memcpy(expected.data(), bytes.data(), bytes.size());
        REQUIRE(found.size() == expected.size());
        for (size_t i = 0; i < found.size(); ++i) REQUIRE(found[i] == static_cast<double>(expected[i]));
        ++n_datasets, n_numbers += static_cast<int64_t>(found.size());
        if (piece->box.offset.empty()) continue;
        const Output attribute =
            sh("h5dump -y -a " + dckpt_tool::quoted(dataset + "/offset") + " " + dckpt_tool::quoted(file));
        REQUIRE(attribute.code == 0);
        const std::vector<double> offset = dumped_numbers(attribute.text);
        CHECK(Shape(offset.begin(), offset.end()) == piece->box.offset);
      }
    }
  }
  int64_t n_pieces = 0, n_elements_of_all = 0;
  for (const TensorInfo& t : tensors) {
    n_pieces += static_cast<int64_t>(checkpoint.pieces(t.name).size());
    n_elements_of_all += n_elements(t.shape);
  }
  CHECK(n_datasets == n_pieces);
  CHECK(n_numbers == n_elements_of_all);
}
