// The doctor's rules for training runs, over the facts of training_facts.h.
#pragma once
#include <vector>

#include "libcore/bench/doctor/finding.h"

namespace rw {

const std::vector<Rule>& training_rules();  // of all four layers
std::vector<Rule> data_rules();
std::vector<Rule> communication_rules();
std::vector<Rule> resource_rules();
std::vector<Rule> parameter_rules();

}  // namespace rw
