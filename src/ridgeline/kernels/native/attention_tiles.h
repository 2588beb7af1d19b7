// The two products of attention with AMX: queries with keys, weights with values.
//
// Law of this file: every row is computed by tiles of sixteen rows, one row or many, so that its
// sums are always the same. Tiles are configured by the thread (step.h).
//
//     scores [16 rows][16 keys] = queries [16 rows][32 dims] x keys   [16 dim pairs][16 keys][2]
//     sums   [16 rows][16 dims] = weights [16 rows][32 keys] x values [16 key pairs][16 dims][2]
//
// Tiles 0 to 3 are sums, 4 is the left operand, 6 and 7 are right ones.
#pragma once
#include "attention_work.h"
#include "tiles.h"

#if defined(__AMX_BF16__)
namespace {
namespace attention {

constexpr int64_t TILE = TILE_BYTES;
constexpr int64_t VALUE_TILES = KEYS / 32 * TILE;  // bytes of sixteen dimensions
constexpr int64_t SCORE_LINE = KEYS * 4;           // bytes

// Scores of 16 rows with four blocks of keys. `stride`, bytes of a query, is 64 times `chunks`.
inline void score_tiles(
    const char* queries, int64_t stride, int64_t chunks, const char* const* keys, char* scores) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t c = 0; c < chunks; c++) {
        _tile_loadd(4, queries + c * 64, stride);
        _tile_loadd(6, keys[0] + c * TILE, 64);
        _tile_loadd(7, keys[1] + c * TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(6, keys[2] + c * TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(7, keys[3] + c * TILE, 64);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, scores, SCORE_LINE);
    _tile_stored(1, scores + 64, SCORE_LINE);
    _tile_stored(2, scores + 128, SCORE_LINE);
    _tile_stored(3, scores + 192, SCORE_LINE);
}

// Weighted values of 16 rows, 16 `tiles` dimensions (at most 64), over `chunks` times 32 keys.
inline void value_tiles(
    const char* weights, const char* values, int chunks, int tiles, char* sums, int64_t line) {
    const char* second = tiles > 1 ? values + VALUE_TILES : values;
    const char* third = tiles > 2 ? second + VALUE_TILES : values;
    const char* fourth = tiles > 3 ? third + VALUE_TILES : values;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int c = 0; c < chunks; c++) {
        _tile_loadd(4, weights + c * 64, SCORE_LINE);
        _tile_loadd(6, values + c * TILE, 64);
        _tile_loadd(7, second + c * TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(6, third + c * TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(7, fourth + c * TILE, 64);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, sums, line);
    if (tiles > 1) _tile_stored(1, sums + 64, line);
    if (tiles > 2) _tile_stored(2, sums + 128, line);
    if (tiles > 3) _tile_stored(3, sums + 192, line);
}

struct TileProducts {
    // Scores [16][KEYS] of up to 16 rows with `blocks` blocks of keys.
    static void scores(const Bf16* queries, int64_t wide, int64_t, int, const char* const* keys,
                       int blocks, float* scores) {
        settle();
        for (int block = 0; block < blocks; block += 4)
            score_tiles((const char*)queries, wide * 2, wide / 32, keys + block,
                        (char*)(scores + block * BLOCK));
        settle();
    }

    // Weighted values [16][H] of the step's first `keys`. values[0]: all gathered as
    // [H / 16][KEYS / 32] tiles.
    static void values(
        const float* weights, int, const char* const* values, int keys, int64_t dims, float* sums) {
        settle();
        for (int64_t d = 0; d < dims; d += 64)
            value_tiles((const char*)weights, values[0] + d / 16 * VALUE_TILES, (keys + 31) / 32,
                        dims - d < 64 ? int(dims - d) / 16 : 4, (char*)(sums + d), dims * 4);
        settle();
    }
};

}  // namespace attention
}  // namespace
#endif
