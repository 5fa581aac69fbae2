#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "libcore/base/clock.h"
#include "libcore/base/units.h"

namespace rw {
namespace {
constexpr double kBarEvery_s = 0.1, kLineEvery_s = 4.0;
constexpr int kBarWidth = 24;
}  // namespace

ProgressBar::ProgressBar() : is_terminal_(::isatty(STDERR_FILENO) == 1), heart_([this] { beat(); }) {}

ProgressBar::~ProgressBar() {
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    if (is_terminal_ && !phase_.empty()) std::fputs("\r\033[K", stderr);
    if (!is_terminal_ && is_unprinted_) print(now_s());  // the last state of a log
  }
  wake_.notify_all();
  heart_.join();
}

void ProgressBar::show(const std::string& phase, double fraction, const std::string& detail) {
  const std::lock_guard lock(mutex_);
  const double now = now_s();
  const bool is_new = phase != phase_;
  if (is_new) phase_ = phase, phase_start_ = now;
  fraction_ = fraction;
  detail_ = detail;
  is_unprinted_ = true;
  if (is_new || now - last_print_ >= (is_terminal_ ? kBarEvery_s : kLineEvery_s)) print(now);
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  if (is_terminal_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::beat() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(500), [this] { return is_done_; })) {
    const double now = now_s();
    if (!phase_.empty() && now - last_print_ >= (is_terminal_ ? 0.5 : kLineEvery_s)) print(now);
  }
}

void ProgressBar::print(double now) {
  last_print_ = now;
  is_unprinted_ = false;
  const double elapsed = now - phase_start_;
  std::string line = phase_;
  if (fraction_ >= 0) {
    const int filled = static_cast<int>(std::clamp(fraction_, 0.0, 1.0) * kBarWidth);
    if (is_terminal_)
      line += " [" + std::string(static_cast<size_t>(filled), '#') +
              std::string(static_cast<size_t>(kBarWidth - filled), '.') + "]";
    line += fmt::format(" {:3.0f} %", 100 * fraction_);
  }
  if (!detail_.empty()) line += "  " + detail_;
  line += "  " + format_seconds(elapsed);
  if (fraction_ > 0.01 && fraction_ < 1 && elapsed > 1)
    line += ", " + format_seconds(elapsed * (1 - fraction_) / fraction_) + " left";
  if (is_terminal_) fmt::print(stderr, "\r{}\033[K", line);
  else fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

}  // namespace rw
