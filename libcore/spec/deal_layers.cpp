#include <algorithm>

#include "libcore/base/check.h"
#include "libcore/spec/layout.h"

namespace rw {
namespace {

// FLOPs of the forward per token. The backward is twice that in each part, which changes no comparison.
double layer_work(const ModelSpec& m, int64_t seq_len) {
  const auto product = [](int64_t n, int64_t k) { return 2.0 * static_cast<double>(n) * static_cast<double>(k); };
  const int64_t q_width = m.heads * m.head_dim, kv_width = m.kv_heads * m.head_dim;
  const double linear = product(q_width + 2 * kv_width, m.width) + product(m.width, q_width) +
                        product((m.gated_mlp() ? 2 : 1) * m.ffn, m.width) + product(m.width, m.ffn);
  // A token sees (seq_len + 1) / 2 others on average: one product for the scores, one for the values.
  const double attention = product(q_width, seq_len + 1);
  return linear + attention;
}

double head_work(const ModelSpec& m) { return 2.0 * static_cast<double>(m.vocab_size) * static_cast<double>(m.width); }

// A row looked up, and one added to in the backward.
double embedding_work(const ModelSpec& m) { return static_cast<double>(m.width) * (m.learned_position() ? 2 : 1); }

}  // namespace

std::vector<int64_t> deal_layers(const ModelSpec& model, int64_t n_stages, int64_t seq_len) {
  CHECK(n_stages >= 1 && model.layers >= n_stages, "%lld layers for %lld stages", static_cast<long long>(model.layers),
        static_cast<long long>(n_stages));
  const double layer = layer_work(model, seq_len);
  std::vector<int64_t> layers(static_cast<size_t>(n_stages), 1);
  std::vector<double> work(layers.size(), layer);
  work.front() += embedding_work(model);
  work.back() += head_work(model);
  // Layers are alike, so giving each to the stage that has least keeps the largest as small as can be. Of equals the
  // later one gets it: a pipeline's early stages hold more micro-batches' activations.
  for (int64_t i = n_stages; i < model.layers; ++i) {
    const auto least = std::min_element(work.rbegin(), work.rend());
    *least += layer;
    ++layers[static_cast<size_t>(work.rend() - least - 1)];
  }
  return layers;
}

}  // namespace rw
