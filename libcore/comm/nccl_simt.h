// What tests ask of NCCL's stand-in beyond nccl.h, and tell it. Of the calling thread, whose rank it is.
#pragma once
#include <cstdint>

namespace rw::nccl {

// The next n registrations of memory are refused.
void refuse_registrations(int n);
// Blocks that are registered with communicators now.
int64_t registered_blocks();
// The most CTAs that messages under way held together so far, each what its communicator's config allows.
int64_t most_message_ctas();

}  // namespace rw::nccl
