#include "pool.h"

#include <unistd.h>

#include <algorithm>

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

// Sequentially consistent: a library that looks for sleepers before the new value is seen by them
// would wake nobody.
void advance(std::atomic<uint32_t>& value) {
    value.fetch_add(1, std::memory_order_seq_cst);
    value.notify_all();
}

}  // namespace

Pool::Pool(int threads)
    : count_(std::max(threads, 1)), counters_(size_t(STAGES) * size_t(count_)) {
    start();
}

Pool::~Pool() {
    if (home_ == getpid())
        stop();
    else
        forget();
}

void Pool::start() {
    try {
        others_.reserve(size_t(count_ - 1));
        for (int thread = 1; thread < count_; thread++)
            others_.emplace_back([this, thread] { work(thread); });
    } catch (...) {
        stop();
        throw;
    }
    home_ = getpid();
}

void Pool::stop() {
    leaving_ = true;
    advance(started_);
    for (auto& other : others_) other.join();
    others_.clear();
    leaving_ = false;
    started_ = 0;
}

// Handles of threads that only the parent has: they can be neither joined nor destroyed here.
void Pool::forget() {
    if (!others_.empty()) new std::vector<std::thread>(std::move(others_));
    others_.clear();
    started_ = arrived_ = met_ = 0;
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
    if (home_ != getpid()) {
        forget();
        start();
    }
    for (auto& counter : counters_) counter.taken.store(0, std::memory_order_relaxed);
    body_ = body;
    what_ = what;
    advance(started_);
    body(what, 0);
    meet();
}

void Pool::meet() {
    if (count_ == 1) return;
    // Read before arriving: no meeting is held without this thread.
    uint32_t round = met_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == uint32_t(count_)) {
        arrived_.store(0, std::memory_order_relaxed);
        advance(met_);
    } else {
        wait_for(met_, round);
    }
}

int64_t Pool::next(int stage, int thread, int64_t pieces) {
    Counter* here = &counters_[size_t(stage % STAGES) * size_t(count_)];
    Counter* later = &counters_[size_t((stage + 2) % STAGES) * size_t(count_)];
    later[thread].taken.store(0, std::memory_order_relaxed);
    for (int step = 0; step < count_; step++) {
        int owner = (thread + step) % count_;
        int64_t first = pieces * owner / count_, end = pieces * (owner + 1) / count_;
        int64_t piece = first + here[owner].taken.fetch_add(1, std::memory_order_relaxed);
        if (piece < end) return piece;
    }
    return -1;
}
