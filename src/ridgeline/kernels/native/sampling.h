// What crosses between Python and the library for drawing tokens; native_draws.py mirrors it.
#pragma once
#include <cstdint>

extern "C" {

// One row: its logits, its rules (serving/engine/messages.py says what they mean), what came out.
struct RlRow {
    const float* logits;  // [V] to draw from
    const float* raw;     // [V] before bias, penalties and masks: the log-probabilities are theirs
    double chance;        // in [0, 1)
    double temperature;   // 0: take the largest
    double min_p, top_p;
    int64_t top_k;         // 0: all
    int64_t alternatives;  // how many of the likeliest to name; -1: no log-probabilities at all
    int32_t* likeliest;    // written: [alternatives] ids, largest first, of equals the lower id first
    double normaliser;     // written, if alternatives >= 0: log of the sum of exp(raw)
    int32_t token;         // written; -1 where the peak is not finite
    float peak;            // written: the largest of `logits`; NaN if any is
};

}  // extern "C"
