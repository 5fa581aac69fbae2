// What dckpt show found, for people. The JSON is what --json prints.
#pragma once
#include "libcore/base/json.h"

namespace rw {

enum class ShowPieces { count, list };  // of each tensor
void print_show_text(const Json& found, ShowPieces pieces);

}  // namespace rw
