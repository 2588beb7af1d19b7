// One token for each row of logits: temperature, min-p, top-k, top-p, and a draw in order of ids.
//
// Law of this file: the rules of serving/engine/draw.py, which is the oracle. A row is one thread's,
// so its outcome depends neither on the batch nor on the number of threads.
#pragma once
#include "nucleus.h"
#include "pool.h"
#include "sampling.h"

namespace {

// The least logit that min-p and top-k keep; -inf: all.
inline float floor_of(const RlRow& row, const Chunks& logits, float peak, Scratch& scratch) {
    double floor = NEVER;
    if (row.min_p > 0) floor = double(peak) + row.temperature * log(row.min_p);
    if (row.top_k > 0 && row.top_k < logits.count) {
        double kth = kth_largest(logits, scratch.maxima, row.top_k, peak, scratch.ids, scratch.values);
        floor = kth > floor ? kth : floor;
    }
    return float(floor);
}

inline int32_t draw(const RlRow& row, const Chunks& logits, float peak, Scratch& scratch) {
    if (row.temperature <= 0) return int32_t(first_of(logits, scratch.maxima, peak));
    Softmax softmax(peak, row.temperature);
    float floor = floor_of(row, logits, peak, scratch), bound = 0;
    bool all = floor == NEVER;
    double whole = 0;
    if (all) {
        whole = sum_all(logits, softmax, scratch);
        if (row.top_p >= 1) return pick_of_all(logits, softmax, row.chance * whole, scratch);
        bound = bound_of_nucleus(row.top_p, whole, logits.count);
        floor = nextafterf(float(double(peak) + row.temperature * log(bound)), NEVER);
    }
    int64_t kept = collect(logits, scratch.maxima, floor, scratch.ids, scratch.values);
    Weights weights = weigh(Chunks(scratch.values, kept), scratch.ids, softmax, scratch);
    if (!all) {
        whole = weights.total;
        bound = bound_of_nucleus(row.top_p, whole, kept);
    }
    if (row.top_p < 1) keep_nucleus(weights, row.top_p * whole, bound, scratch.others);
    return pick(weights, row.chance);
}

inline void sample_row(RlRow& row, int64_t vocab, Scratch& scratch) {
    Chunks logits(row.logits, vocab);
    row.peak = peak_of(logits, scratch.maxima);
    row.token = -1;
    if (!(row.peak > NEVER && row.peak < INFINITY)) return;
    row.token = draw(row, logits, row.peak, scratch);
    if (row.alternatives < 0) return;
    Chunks raw(row.raw, vocab);
    float peak = row.raw == row.logits ? row.peak : peak_of(raw, scratch.maxima);
    int64_t named = row.alternatives < vocab ? row.alternatives : vocab;
    name_largest(raw, scratch.maxima, named, peak, scratch.ids, scratch.values, row.likeliest);
    row.normaliser = double(peak) + log(sum_all(raw, Softmax(peak, 1.0), scratch));
}

struct SampleArguments {
    Pool* pool;
    RlRow* rows;
    int64_t count, vocab;
    char* scratch;
    int64_t scratch_bytes;
};

void sample_of_thread(void* what, int thread) {
    auto& a = *(SampleArguments*)what;
    Scratch scratch(a.scratch + thread * a.scratch_bytes, a.vocab);
    for (int64_t row; (row = a.pool->next(0, thread, a.count)) >= 0;)
        sample_row(a.rows[row], a.vocab, scratch);
}

// All rows, shared among the pool's threads; two rows are done before another thread has woken.
void sample_rows(
    Pool& pool, RlRow* rows, int64_t count, int64_t vocab, char* scratch, int64_t scratch_bytes) {
    SampleArguments arguments{&pool, rows, count, vocab, scratch, scratch_bytes};
    if (count > 2) return pool.run(sample_of_thread, &arguments);
    Scratch own(scratch, vocab);
    for (int64_t row = 0; row < count; row++) sample_row(rows[row], vocab, own);
}

}  // namespace
