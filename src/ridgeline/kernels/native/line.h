// Where a row of activations lies: sixteen rows share tiles of 64 bytes each.
//
//     [row / 16] [byte / 64] [row % 16] [64 bytes]
//
// AMX loads a tile that is one piece of memory four times as fast as one of sixteen distant lines;
// other levels do not mind.
#pragma once
#include "tiles.h"

namespace {

struct Line {
    char* first;

    // `row_bytes`, a multiple of 64, are those of each row.
    Line(char* rows, int64_t row_bytes, int64_t row)
        : first(rows + row / 16 * 16 * row_bytes + row % 16 * 64) {}

    // From `byte` on to the end of its 64.
    char* at(int64_t byte) const { return first + byte / 64 * TILE_BYTES + byte % 64; }
};

}  // namespace
