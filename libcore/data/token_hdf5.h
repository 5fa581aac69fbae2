// The HDF5 side of a token file: the empty structure around the bytes that the writer then puts in place.
#pragma once
#include <filesystem>

#include "libcore/data/token_header.h"

namespace rw {

// Creates `file` with the datasets `tokens` (n_tokens), `document_offsets` (n_documents + 1) and `tokenizer_json`
// (tokenizer_json_bytes), allocated but not written, each at a multiple of 4,096 bytes, and `facts` as attributes; sets
// facts.*_at to where the datasets' bytes lie. Error{runtime} with the path and HDF5's reason.
void create_token_hdf5(const std::filesystem::path& file, TokenFacts& facts);

}  // namespace rw
