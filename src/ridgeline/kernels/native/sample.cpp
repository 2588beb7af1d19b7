// The library's C functions for drawing tokens. A sampler has threads and scratch of its own.
#include <cstdlib>
#include <new>

#include "library.h"
#include "sampling.h"

#define RL_EXPORT extern "C" __attribute__((visibility("default")))

static_assert(sizeof(RlRow) == 88, "native_draws.py lays it out");

namespace {

struct Sampler {
    Sampler(const Level& level, int64_t vocab, int threads)
        : level(level), vocab(vocab), pool(threads),
          bytes((level.sample_scratch_bytes(vocab) + 4095) / 4096 * 4096),
          scratch(static_cast<char*>(std::aligned_alloc(4096, size_t(bytes * threads)))) {
        if (!scratch) throw std::bad_alloc();
    }
    ~Sampler() { std::free(scratch); }
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    const Level& level;
    int64_t vocab;
    Pool pool;
    int64_t bytes;
    char* scratch;
};

}  // namespace

// A sampler for rows of `vocab` words; null where the level is lacking or memory is short.
RL_EXPORT void* rl_sampler_open(int64_t vocab, int32_t threads, const char* level) {
    const Level* found = level_named(level);
    if (!found) return nullptr;
    try {
        return new Sampler(*found, vocab, threads);
    } catch (const std::exception&) {
        return nullptr;
    }
}

RL_EXPORT void rl_sampler_close(void* sampler) { delete static_cast<Sampler*>(sampler); }

RL_EXPORT void rl_sample(void* sampler, RlRow* rows, int64_t count) {
    auto& s = *static_cast<Sampler*>(sampler);
    s.level.sample(s.pool, rows, count, s.vocab, s.scratch, s.bytes);
}
