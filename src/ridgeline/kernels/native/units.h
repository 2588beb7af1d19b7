// How a step's attention is cut into units that threads take one by one.
//
// Law of this file: contexts are cut at multiples of PART_KEYS, and units never depend on what else
// is in the batch, so that a row's rounding does not either.
#pragma once
#include <cstdint>
#include <vector>

#include "abi.h"

constexpr int PART_KEYS = 1024;  // a longer context is cut here, so that threads share a sequence

// `positions` consecutive rows of one sequence, from `first_row`, all query heads of one key-value
// head, over keys [first_key, end_key). `place`: where its partial result goes, -1 if it is whole.
struct Unit {
    int32_t sequence, first_row, positions, kv_head, first_key, end_key, place;
};

// Parts [place, place + parts) of the same rows and head, to be joined.
struct Merge {
    int32_t first_row, positions, kv_head, place, parts;
};

// Cuts a batch into units of at most `positions` query rows, heaviest first, and says what is to be
// joined; returns the number of partial results.
int64_t plan_units(const RlModel& model, const RlBatch& batch, int positions,
                   std::vector<Unit>& units, std::vector<Merge>& merges);
