// What is asked of a server's facts (serving_facts.h), in the order data flow, communication, resources, parameters.
#pragma once
#include <vector>

#include "libcore/bench/doctor/finding.h"

namespace rw {

const std::vector<Rule>& serving_rules();

}  // namespace rw
