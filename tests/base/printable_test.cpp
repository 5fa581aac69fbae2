#include "libcore/base/printable.h"

#include <doctest/doctest.h>

using namespace rw;

TEST_CASE("what a terminal would act on is shown as a question mark") {
  CHECK(printable("plain text\nof two lines") == "plain text\nof two lines");
  CHECK(printable_line("a name\nof two lines\x7f") == "a name?of two lines?");
  CHECK(printable("\x1b[31mred\x1b[0m\a\r\t") == "?[31mred?[0m???");
  CHECK(printable("Gr\xc3\xb6\xc3\x9f"
                  "e \xe2\x96\x81\xf0\x9f\x98\x80") ==
        "Gr\xc3\xb6\xc3\x9f"
        "e \xe2\x96\x81\xf0\x9f\x98\x80");
  CHECK(printable("a\xe2\x80\xae"
                  "b\xe2\x81\xa6"
                  "c") == "a?b?c");  // U+202E, U+2066
  CHECK(printable("\xc2\x9b"
                  "31m") == "?31m");                              // U+009B: a control sequence in one character
  CHECK(printable("\xc0\xaf\xed\xa0\x80\xe2\x96") == "???????");  // overlong, a surrogate, cut off
}
