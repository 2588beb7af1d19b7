// The kernels, compiled once for each level: RL_LEVEL names it.
#include "sample.h"
#include "step.h"

#define RL_JOIN_(a, b) a##b
#define RL_JOIN(a, b) RL_JOIN_(a, b)
#define RL_TEXT_(a) #a
#define RL_TEXT(a) RL_TEXT_(a)

extern const Level RL_JOIN(RL_LEVEL, _level);
const Level RL_JOIN(RL_LEVEL, _level) = {
    RL_TEXT(RL_LEVEL), BF16_DOT, unit_positions, attention_scratch_bytes, run_step,
    sample_scratch_bytes, sample_rows,
};
