// What attention works on: the shape of a unit, its thread's scratch, the cache blocks of a step.
//
// Law of this file: keys are taken in steps of KEYS, counted from position 0, whatever the unit, so
// that a row's sums have the same order alone, in a batch or in a prompt's chunk.
#pragma once
#include <cstdint>

#include "abi.h"
#include "units.h"
#include "vec.h"

namespace {
namespace attention {

constexpr int KEYS = 128;           // of one softmax step
constexpr int BLOCK = 16;           // keys of a block of the cache
constexpr int BLOCKS = KEYS / BLOCK;
constexpr int CHUNK = 16;           // rows whose scores are held at a time: a tile of them
constexpr int UNIT_ROWS = 64;       // wanted of a prompt's unit: so many rows share what is read
constexpr float LEAST = -1e30f;     // below every score; 2**LEAST is 0

#if defined(__AVX512BF16__)
constexpr bool PAIRS = true;        // bf16 is multiplied in pairs, not widened
#else
constexpr bool PAIRS = false;
#endif
#if defined(__AMX_BF16__)
constexpr bool TILES = true;
#else
constexpr bool TILES = false;
#endif

template <class A, class B>
constexpr bool SAME = false;
template <class A>
constexpr bool SAME<A, A> = true;

// Activations and cached items as the products take them.
template <bool NARROW, class Narrow, class Wide>
struct Choice {
    using Type = Wide;
};
template <class Narrow, class Wide>
struct Choice<true, Narrow, Wide> {
    using Type = Narrow;
};
template <class Activation>
using OperandOf = typename Choice<PAIRS, Activation, float>::Type;
template <class Activation, class Cached>
using ItemOf = typename Choice<PAIRS && SAME<Activation, Bf16>, Bf16, Cached>::Type;

inline int group_of(const RlModel& model) { return int(model.heads / model.kv_heads); }
inline int up_to(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

// One thread's scratch. Rows are padded to whole tiles, a query's dimensions to a multiple of 32.
struct Scratch {
    char* queries;       // [rows][padded dims] operands
    float* sums;         // [rows][H] weighted values so far, for the weights' maximum `tops`
    float* totals;       // [rows][LANES] of the weights
    float* tops;         // [rows]
    int32_t* seen;       // [rows] keys up to and with the row's own
    float* scores;       // [CHUNK][KEYS]; then the weights, as operands, from each line's beginning
    float* step_sums;    // [CHUNK][H]
    float* shrinks;      // [CHUNK] factor from the last maximum to the new one
    char* keys;          // [BLOCKS][padded dims / 2][BLOCK][2] bf16
    char* values;        // [KEYS / 2][H][2] bf16, or one block of the cache
    float* key_scales;   // [KEYS]
    float* value_scales; // [KEYS]
    int64_t bytes;

    Scratch(const RlModel& model, int64_t unit_rows, char* base) {
        int64_t dims = model.head_dim, wide = (dims + 31) / 32 * 32;
        int64_t rows = (unit_rows + CHUNK - 1) / CHUNK * CHUNK, used = 0;
        auto take = [&](int64_t size) {
            char* at = base ? base + used : nullptr;
            used += (size + 63) / 64 * 64;
            return at;
        };
        queries = take(rows * wide * 4);
        sums = (float*)take(rows * dims * 4);
        totals = (float*)take(rows * LANES * 4);
        tops = (float*)take(rows * 4);
        seen = (int32_t*)take(rows * 4);
        scores = (float*)take(CHUNK * KEYS * 4);
        step_sums = (float*)take(CHUNK * dims * 4);
        shrinks = (float*)take(CHUNK * 4);
        keys = take(KEYS * wide * 2);
        values = take(KEYS * dims * 2);
        key_scales = (float*)take(KEYS * 4);
        value_scales = (float*)take(KEYS * 4);
        bytes = used;
    }
};

// Keys [begin, begin + count) of one sequence and head, and their blocks in the cache. Pointers
// from `blocks` on repeat the last block, for loops that take several at a time.
struct Step {
    int begin, count, blocks;
    const char *keys[BLOCKS], *values[BLOCKS];
    int64_t scales[BLOCKS];  // where the blocks' scales begin
};

inline Step find_step(const RlModel& model, const RlLayer& layer, const int32_t* table, int head,
                      int item_bytes, int begin, int end) {
    Step step;
    step.begin = begin;
    step.count = end - begin < KEYS ? end - begin : KEYS;
    step.blocks = (step.count + BLOCK - 1) / BLOCK;
    int64_t bytes = BLOCK * model.head_dim * item_bytes;
    for (int i = 0; i < BLOCKS; i++) {
        int64_t block = begin / BLOCK + (i < step.blocks ? i : step.blocks - 1);
        int64_t per = model.blocks_per, sixteen = table[block / per] * per + block % per;
        int64_t at = sixteen * model.kv_heads + head;
        step.keys[i] = (const char*)layer.keys + at * bytes;
        step.values[i] = (const char*)layer.values + at * bytes;
        step.scales[i] = at * BLOCK;
    }
    return step;
}

}  // namespace attention
}  // namespace
