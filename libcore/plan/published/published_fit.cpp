#include "libcore/plan/published/published_fit.h"

#include <array>
#include <cmath>
#include <set>

#include "kernels/plain_sizes.h"
#include "libcore/plan/price/least_squares.h"
#include "libcore/plan/price/predict.h"

namespace rw {
namespace {

constexpr double kResidual = 0.03;

// What is fitted of a generation, within what.
struct DeviceKnob {
  double PublishedNumbers::Device::*value;
  double low, high, centre;
};
constexpr std::array kDeviceKnobs = {
    DeviceKnob{&PublishedNumbers::Device::gemm_fraction, 0.4, 1, 0.75},
    DeviceKnob{&PublishedNumbers::Device::attention_fraction, 0.1, 0.95, 0.5},
    DeviceKnob{&PublishedNumbers::Device::memory_fraction, 0.2, 0.95, 0.6},
    DeviceKnob{&PublishedNumbers::Device::overlap, 0.01, 0.999, 0.5},
    DeviceKnob{&PublishedNumbers::Device::misaligned_fraction, 0.03, 1, 0.1},
};
struct TrainerKnob {
  double PublishedNumbers::Trainer::*value;
  double low, high, prior;
};
constexpr std::array kTrainerKnobs = {
    TrainerKnob{&PublishedNumbers::Trainer::compute_factor, 0.5, 2.5, 0.15},
    TrainerKnob{&PublishedNumbers::Trainer::communication_factor, 0.1, 10, 0.3},
};
constexpr double kDevicePrior = 0.3;

bool is_reference(const std::string& trainer) { return trainer.starts_with("llm-foundry"); }
bool has_few_rows(const std::string& trainer) { return trainer == "deepspeed"; }

}  // namespace

std::string device_generation(const PublishedRow& row) { return row.device.starts_with("A100") ? "a100" : "h100"; }

PublishedNumbers shipped_numbers(const std::vector<PublishedRow>& rows) {
  PublishedNumbers numbers;
  for (const PublishedRow& row : rows) {
    if (!row.excluded.empty()) continue;
    const DeviceType& d = row.cluster.devices.front();
    numbers.devices[device_generation(row)] = {d.gemm_fraction, d.attention_fraction, d.memory_fraction, d.overlap,
                                               d.misaligned_fraction};
    numbers.trainers[row.numbers] = {row.traits.compute_factor, row.traits.communication_factor};
  }
  return numbers;
}

PublishedPricer::PublishedPricer(const std::vector<PublishedRow>& rows) {
  std::map<std::string, std::shared_ptr<WorkCache>> by_model;
  for (const PublishedRow& row : rows) {
    if (!row.excluded.empty()) continue;
    auto& works =
        by_model[model_identity(row.model) + (row.model.tied_head ? "t" : "") + std::to_string(row.model.max_position)];
    if (works == nullptr) works = std::make_shared<WorkCache>(row.model, DType::bf16, plain_sizes(), 1);
    works_[&row] = works;
  }
}

StepSeconds PublishedPricer::step(const PublishedRow& row, const PublishedNumbers& numbers) const {
  ClusterSpec cluster = row.cluster;
  DeviceType& d = cluster.devices.front();
  const PublishedNumbers::Device& device = numbers.devices.at(device_generation(row));
  d.gemm_fraction = device.gemm_fraction;
  d.attention_fraction = device.attention_fraction;
  d.memory_fraction = device.memory_fraction;
  d.overlap = device.overlap;
  d.misaligned_fraction = device.misaligned_fraction;
  PredictQuery query{.model = row.model, .cluster = cluster};
  query.trainer = row.traits;
  const PublishedNumbers::Trainer& trainer = numbers.trainers.at(row.numbers);
  query.trainer.compute_factor = trainer.compute_factor;
  query.trainer.communication_factor = trainer.communication_factor;
  query.works = works_.at(&row);
  Predictor predictor(query);
  return predictor.step_seconds(row.layout, Effort::closed_form);
}

PublishedFit fit_published(const PublishedPricer& pricer, const std::vector<const PublishedRow*>& rows,
                           const PublishedNumbers& start, FitScope scope) {
  std::set<std::string> generations, trainers;
  for (const PublishedRow* row : rows) generations.insert(device_generation(*row)), trainers.insert(row->numbers);

  // The numbers as a list that is fitted, and back.
  std::vector<FitParameter> parameters;
  struct Prior {
    double weight, centre;
  };
  std::vector<Prior> priors;
  PublishedNumbers numbers = start;
  std::vector<double*> places;
  const auto add = [&](double& place, double low, double high, Prior prior) {
    parameters.push_back({.start = std::clamp(place, low * 1.0001, high * 0.9999), .low = low, .high = high});
    priors.push_back(prior);
    places.push_back(&place);
  };
  const bool all = scope == FitScope::all;
  for (const std::string& g : generations)
    if (all)
      for (const DeviceKnob& k : kDeviceKnobs)
        add(numbers.devices.at(g).*k.value, k.low, k.high, {kDevicePrior, k.centre});
  for (const std::string& t : trainers) {
    if (all && is_reference(t)) continue;
    for (size_t i = 0; i < kTrainerKnobs.size(); ++i) {
      const TrainerKnob& k = kTrainerKnobs[i];
      if (i == 0 || !all || !has_few_rows(t)) add(numbers.trainers.at(t).*k.value, k.low, k.high, {k.prior, 1.0});
    }
  }

  // A row asks for seven numbers: its price is kept until they change, and the one before, to which a numeric
  // derivative returns.
  constexpr size_t kNumbers = 7;
  struct Kept {
    std::array<double, kNumbers> numbers{};
    double log_ratio = 0;
  };
  std::vector<std::array<Kept, 2>> kept(rows.size());
  const auto residuals = [&](const std::vector<double>& p) {
    for (size_t i = 0; i < p.size(); ++i) *places[i] = p[i];
    std::vector<double> r;
    for (size_t i = 0; i < rows.size(); ++i) {
      const PublishedNumbers::Device& d = numbers.devices.at(device_generation(*rows[i]));
      const PublishedNumbers::Trainer& t = numbers.trainers.at(rows[i]->numbers);
      const std::array<double, kNumbers> now{
          d.gemm_fraction,       d.attention_fraction, d.memory_fraction,     d.overlap,
          d.misaligned_fraction, t.compute_factor,     t.communication_factor};
      auto& [last, before] = kept[i];
      if (now == before.numbers) std::swap(last, before);
      if (now != last.numbers) {
        before = last;
        last = {now, std::log(pricer.step(*rows[i], numbers).total() / rows[i]->step_s)};
      }
      r.push_back(last.log_ratio / kResidual);
    }
    for (size_t i = 0; i < p.size(); ++i) r.push_back(priors[i].weight * std::log(p[i] / priors[i].centre));
    return r;
  };
  const Fit fit = fit_least_squares(parameters, residuals);
  for (size_t i = 0; i < places.size(); ++i) *places[i] = fit.parameters[i];
  return {.numbers = numbers, .cost_before = fit.cost_before, .cost = fit.cost};
}

}  // namespace rw
