// Progress of a long job for people, on stderr: a bar on a terminal, a plain line at least every few seconds otherwise.
// A job that goes quiet (one long step) still shows that it lives: its last state is printed again with the time.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace rw {

class ProgressBar {
 public:
  ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();  // ends the line
  // What is being done, how far (0..1; below 0: unknown), and anything else; cheap, so call it often.
  void show(const std::string& phase, double fraction, const std::string& detail);
  void clear();  // takes the bar off the terminal, so that a line can be printed

 private:
  void beat();
  void print(double now);

  bool is_terminal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_done_ = false, is_unprinted_ = false;
  std::string phase_, detail_;
  double fraction_ = -1, phase_start_ = 0, last_print_ = -1e9;
  std::thread heart_;
};

}  // namespace rw
