#include "pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int STAGES = 4;  // a stage's counters are cleared two meetings before they are used again
constexpr int SPINS = 1500;

void pause_once() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

Pool::Pool(int threads) : count_(threads), counters_(size_t(STAGES) * threads) {
    for (int thread = 1; thread < threads; thread++)
        others_.emplace_back([this, thread] { work(thread); });
}

Pool::~Pool() {
    leaving_ = true;
    started_.fetch_add(1);
    started_.notify_all();
    for (auto& other : others_) other.join();
}

void Pool::wait_for(std::atomic<uint32_t>& value, uint32_t old) {
    for (int spin = 0; spin < SPINS; spin++) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause_once();
    }
    while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void Pool::work(int thread) {
    uint32_t seen = 0;
    while (true) {
        wait_for(started_, seen);
        seen++;
        if (leaving_) return;
        body_(what_, thread);
        meet();
    }
}

void Pool::run(Body body, void* what) {
    for (auto& counter : counters_) counter.taken.store(0, std::memory_order_relaxed);
    body_ = body;
    what_ = what;
    started_.fetch_add(1, std::memory_order_release);
    started_.notify_all();
    body(what, 0);
    meet();
}

void Pool::meet() {
    if (count_ == 1) return;
    uint32_t round = met_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == uint32_t(count_)) {
        arrived_.store(0, std::memory_order_relaxed);
        met_.fetch_add(1, std::memory_order_release);
        met_.notify_all();
    } else {
        wait_for(met_, round);
    }
}

int64_t Pool::next(int stage, int thread, int64_t pieces) {
    Counter* here = &counters_[size_t(stage % STAGES) * count_];
    Counter* later = &counters_[size_t((stage + 2) % STAGES) * count_];
    later[thread].taken.store(0, std::memory_order_relaxed);
    for (int step = 0; step < count_; step++) {
        int owner = (thread + step) % count_;
        int64_t first = pieces * owner / count_, end = pieces * (owner + 1) / count_;
        int64_t piece = first + here[owner].taken.fetch_add(1, std::memory_order_relaxed);
        if (piece < end) return piece;
    }
    return -1;
}
