// What crosses between Python and the library: plain structs, mirrored by native_decoder.py field by field.
//
// Law of this file: every array belongs to the caller, who keeps it alive while the decoder lives
// (weights, cache) or the call lasts (batch). Sizes are in elements unless a name says bytes.
//
// Shapes: T rows (tokens) of the flat batch, S sequences, W wanted rows, D hidden, N query heads,
// K key-value heads, H head dimensions, F feed-forward, V words.
#pragma once
#include <cstdint>

#define RL_ABI 1
#define RL_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {

enum RlKind : int32_t { RL_F32 = 0, RL_BF16 = 1, RL_INT8 = 2 };

// The stages of a step whose time is kept, in the order in which a layer runs them.
enum RlStage : int32_t {
    RL_EMBED, RL_NORM, RL_QKV, RL_ROPE, RL_ATTENTION, RL_QUANTISE, RL_OUT, RL_GATE_UP, RL_DOWN,
    RL_HEAD, RL_STAGES
};

// One product's weights [out, in], packed (gemm.h draws the tiles). `scales` and `sums` (of each
// output's int8 weights), padded to 32 outputs, belong to RL_INT8 only; `bias` [out] may be null.
struct RlLinear {
    const void* tiles;
    const float* scales;
    const int32_t* sums;
    const float* bias;
    int64_t out, in;
    int32_t kind;
};

// One layer: weights, norms (q_norm and k_norm [H] may be null), and its part of the paged cache.
struct RlLayer {
    RlLinear qkv, attended, gate_up, down;
    const float *input_norm, *q_norm, *k_norm, *ffn_norm;
    void *keys, *values;              // null until a cache is given
    float *key_scales, *value_scales; // RL_INT8 caches only
};

struct RlModel {
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    float eps;
    int32_t activation;         // RL_F32 or RL_BF16
    int32_t cache;              // RL_F32, RL_BF16 or RL_INT8
    int32_t threads;
    int64_t blocks_per;         // sixteens in one block of the tables
    const float* frequencies;   // [H / 2]
    const void* embedding;      // [V, D] of the activation's kind
    const float* final_norm;    // [D]
    RlLinear head;
    RlLayer* layer;             // [layers]
};

struct RlBatch {
    int64_t rows, sequences, wanted_rows, table_width;
    const int32_t *token_ids, *starts, *lens, *contexts, *tables, *wanted;
};

}  // extern "C"
