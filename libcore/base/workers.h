// A list of independent jobs, done by a few threads.
#pragma once
#include <cstddef>
#include <functional>

namespace rw {

// job(i) for each i in [0, n), by the calling thread and up to threads - 1 others. The first exception is rethrown when
// all have stopped; jobs that had not begun are then left out.
void run_jobs(size_t n, int threads, const std::function<void(size_t)>& job);
// Threads for jobs that read and compute: the machine's, at most 8.
int reading_threads();

}  // namespace rw
