// What each level offers to the dispatcher: one table of functions, one table a level.
#pragma once
#include "abi.h"
#include "pool.h"
#include "sampling.h"
#include "units.h"

struct Workspace;

struct Level {
    const char* name;
    bool bf16_dot;  // whether products take bf16 activations as they are
    int (*unit_positions)(const RlModel&);  // query positions of one attention unit
    int64_t (*attention_scratch_bytes)(const RlModel&);  // of one thread
    void (*step)(Workspace&, const RlModel&, const RlBatch&, float* logits);
    int64_t (*sample_scratch_bytes)(int64_t vocab);  // of one thread
    void (*sample)(Pool&, RlRow*, int64_t rows, int64_t vocab, char* scratch, int64_t scratch_bytes);
};

extern const Level plain_level, avx2_level, avx512_level, amx_level;

// Null where this processor, or this library, lacks it.
const Level* level_named(const char* name);
