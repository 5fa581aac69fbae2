// How a rank waits for its peers without burning the core that they may need: it spins for as long as a peer on another
// core typically takes, then yields, then sleeps on its bell until somebody rings.
#pragma once
#include <cstdint>

#include "libcore/comm/board_memory.h"

namespace rw {

// Wakes the owner of `bell` if it sleeps; called after what it waits for was stored (sequentially consistent, as is the
// check before sleeping, so that one of the two sees the other).
void ring(Bell& bell);

class Patience {
 public:
  // `bell` is null where nobody rings (MPI messages): then short sleeps are all there is. `may_spin` is false when the
  // ranks of this host outnumber its cores.
  Patience(Bell* bell, bool may_spin);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  void moved();  // something happened: start over with spinning
  // Call when a look around found nothing to do; look again after it returned.
  void pause();
  double waited_s();                     // since construction or moved()
  bool slept() const { return slept_; }  // the last pause() was a sleep that may have run out: look for dead peers

 private:
  Bell* bell_;
  bool may_spin_, armed_ = false, slept_ = false;
  int64_t rounds_ = 0;
  uint32_t seen_ = 0;
  double since_s_ = -1;
};

bool ranks_fit_cores(int ranks);

}  // namespace rw
