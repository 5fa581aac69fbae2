// What StepsRun needs, over MPI messages.
#pragma once
#include <memory>
#include <vector>

#include "libcore/comm/mpi_link.h"
#include "libcore/comm/steps_run.h"

namespace rw {

class MpiStepLink final : public StepLink {
 public:
  // `tag` tells the messages of this collective from those of others under way on the link.
  MpiStepLink(std::shared_ptr<MpiLink> link, int tag) : link_(std::move(link)), tag_(tag) {}
  void set_tag(int tag) { tag_ = tag; }  // for the next collective
  int64_t start_send(const void* data, int64_t bytes, int peer) override;
  int64_t start_recv(void* data, int64_t bytes, int peer) override;
  bool test(int64_t message) override;

 private:
  int64_t free_place();

  std::shared_ptr<MpiLink> link_;
  int tag_;
  std::vector<Transfers> under_way_;
  std::vector<bool> is_used_;
};

}  // namespace rw
