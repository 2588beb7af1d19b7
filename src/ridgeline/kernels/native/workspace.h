// The buffers and threads that a decoder keeps between steps, made and grown by decoder.cpp.
//
// Law of this file: each row buffer holds a multiple of 32 rows of a multiple of 64 columns, zero
// where no value belongs.
#pragma once
#include "abi.h"
#include "pool.h"
#include "units.h"

struct Workspace {
    Pool* pool;
    float* x;           // residual stream [T, D]
    char* h;            // lines (line.h): normed, in the next product's format [T, D]
    float* qkv;         // [T, (N + 2K) H]
    char* q;            // rotated queries, of the activation's kind [T, N H]
    char* attended;     // lines: of the activation's kind [T, N H]
    char* m;            // lines: silu(gate) * up [T, F]
    char* prepared;     // lines: attended or m in the next product's format, where that is another
    float* row_scales;  // [T] of int8 rows
    int64_t x_bytes, h_bytes, qkv_bytes, q_bytes, attended_bytes, m_bytes, prepared_bytes;  // a row
    int32_t* positions;  // [T] position of each row in its sequence
    int32_t* owners;     // [T] its sequence
    const float* cosines;  // [positions, H / 2]
    const float* sines;
    const Unit* units;
    int64_t unit_count;
    const Merge* merges;
    int64_t merge_count;
    float* partial;        // partial results of attention
    char* scratch;         // [threads] of scratch_bytes
    int64_t scratch_bytes;
    double* seconds;       // [RL_STAGES], added to
};
