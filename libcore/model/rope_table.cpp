#include "libcore/model/rope_table.h"

#include <cmath>
#include <numbers>

namespace rw {
namespace {

// Llama 3.1: low frequencies are divided by the factor, high ones kept, those between blended by wavelength.
double llama3_scaled(double frequency, const ModelSpec& s) {
  const double context = static_cast<double>(s.rope_original_max_position);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < context / s.rope_high_freq) return frequency;
  if (wavelength > context / s.rope_low_freq) return frequency / s.rope_factor;
  const double smooth = (context / wavelength - s.rope_low_freq) / (s.rope_high_freq - s.rope_low_freq);
  return (1.0 - smooth) * frequency / s.rope_factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const ModelSpec& s) {
  std::vector<float> frequencies(static_cast<size_t>(s.head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double f = std::pow(s.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim));
    if (s.rope_scaling == RopeScaling::llama3) f = llama3_scaled(f, s);
    if (s.rope_scaling == RopeScaling::linear) f /= s.rope_factor;
    frequencies[i] = static_cast<float>(f);
  }
  return frequencies;
}

RopeTable::RopeTable(const ModelSpec& spec, int64_t max_position, const Exec& exec, Arena& arena)
    : max_position_(max_position) {
  const std::vector<float> frequencies = rope_frequencies(spec);
  const int64_t n = max_position * static_cast<int64_t>(frequencies.size());
  if (arena.kind() == ArenaKind::count) {
    for (Mirrored<float>* table : {&cos_, &sin_}) table->device = arena.take_n<float>(n, MemoryOwner::data);
    return;
  }
  for (Mirrored<float>* table : {&cos_, &sin_}) *table = arena.take_mirrored<float>(n, MemoryOwner::data);
  int64_t at = 0;
  for (int64_t p = 0; p < max_position; ++p)
    for (const float f : frequencies) {
      const float angle = static_cast<float>(p) * f;
      cos_.host[at] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sin_.host[at++] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  for (const Mirrored<float>* table : {&cos_, &sin_})
    exec.ops.upload({.device = table->device, .host = table->host, .bytes = n * static_cast<int64_t>(sizeof(float))},
                    exec.stream);
}

}  // namespace rw
