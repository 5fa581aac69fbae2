// Between our parameters and the tensors of a Hugging Face file. The param table says which box of which file tensor a
// parameter is (GPT-2's c_attn holds q, k and v beside each other, transposed); nothing here knows a model.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "libcore/formats/safetensors.h"
#include "libcore/spec/param_table.h"
#include "libcore/tensor/source.h"

namespace rw {

// The file's tensors in the order of the table, each assembled from the parameters that lie in it when it is asked for;
// `weights` has our names and must outlive the result. A tied head is in the table once and so in the file once.
// Error{input} when a parameter is missing, has another shape, or, when an f16 tensor is read, holds a finite value
// beyond f16's 65504.
std::vector<ExportTensor> hf_tensors(const std::vector<Param>& params, const TensorSource& weights, DType dtype);

// Presents a source with Hugging Face names as one with our names and shapes. A box of ours reads only the box of the
// file that holds it.
class HfSource : public TensorSource {
 public:
  // Error{input} for a missing tensor names the parameter, the names tried and the nearest present ones; for a wrong
  // shape, expected and found.
  HfSource(std::unique_ptr<TensorSource> file, const std::vector<Param>& params);
  std::string where() const override { return file_->where(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, DType dst_type, void* dst) const override;
  // Tensors of the file that are no parameter, without the buffers that old versions saved (attention masks, rotary
  // frequencies) and a tied head's second copy.
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  struct Place {
    std::string file_name;
    Box file_box;
    bool transposed;
  };
  std::unique_ptr<TensorSource> file_;
  std::vector<TensorInfo> tensors_;  // ours, sorted by name
  std::vector<Place> places_;        // the same order
  std::vector<std::string> unused_;
};

}  // namespace rw
