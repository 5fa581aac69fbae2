// GPT-2's reversible table between bytes and printable characters: a vocabulary of byte strings is written as text with
// it (" the" is "Ġthe"). Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 and up, in byte order.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace rw {

uint32_t byte_character(uint8_t byte);
// The bytes in the order of their characters: GPT-2's (and this trainer's) ids 0 to 255.
std::array<uint8_t, 256> bytes_by_character();

std::string alphabet_text(std::string_view bytes);
// Appends the bytes that `text` stands for; false (and nothing appended) when a character is outside the alphabet.
bool append_alphabet_bytes(std::string_view text, std::string& bytes);

}  // namespace rw
