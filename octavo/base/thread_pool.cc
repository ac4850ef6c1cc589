#include "octavo/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "octavo/base/machine.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

// A matrix-vector product of a decoder layer lasts 200 us and more, and what comes between two of
// them less than 100. A sleeping worker takes some 50 us to wake.
constexpr auto kSpin = std::chrono::microseconds(100);
// Between two yields of the core, which cost 0.3 us when nobody wants it. Should the thread that is
// waited for want it, this is what it loses.
constexpr int kPausesPerYield = 64;

// What a worker's word says.
enum class Word {
  idle,      // no work; the worker spins
  asleep,    // no work; the worker sleeps on the word
  job,       // work that nobody has begun: either side takes it by changing the word
  running,   // the worker is at it; the caller has nothing left to do and spins
  awaited,   // the worker is at it; the caller sleeps on the word
  finished,  // the pool is at its end
};

// In the body of a parallel call.
thread_local bool inside = false;

// Forks between this process and the first that made a pool.
std::atomic<int> forks = 0;

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until the word is neither `now` nor `sleeping`, and returns it. Spins for kSpin, then
// announces by `sleeping` that it must be woken.
Word wait_for_change(std::atomic<Word>& word, Word now, Word sleeping) {
  const auto end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerYield; ++i) {
      if (const Word value = word.load(std::memory_order_acquire); value != now) return value;
      pause_core();
    }
    std::this_thread::yield();
  } while (Clock::now() < end);
  Word value = now;
  if (!word.compare_exchange_strong(value, sleeping, std::memory_order_acquire)) return value;
  word.wait(sleeping, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

// Takes a job that nobody has begun. A worker that must be woken first, or whose core others use,
// may be slower than its caller.
bool take(std::atomic<Word>& word, Word next) {
  Word expected = Word::job;
  return word.compare_exchange_strong(expected, next, std::memory_order_acquire);
}

// Sets the word and wakes the other side if it sleeps on it. Sequentially consistent, as notify_one
// looks for sleepers only after it.
void change(std::atomic<Word>& word, Word next, Word sleeping) {
  if (word.exchange(next) == sleeping) word.notify_one();
}

// False if the system refuses.
bool pin(std::thread& thread, int cpu) {
  cpu_set_t* set = CPU_ALLOC(cpu + 1);
  if (set == nullptr) return false;
  const std::size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(cpu, bytes, set);
  const bool pinned = pthread_setaffinity_np(thread.native_handle(), bytes, set) == 0;
  CPU_FREE(set);
  return pinned;
}

}  // namespace

// Word and work on one cache line: one transfer hands both over.
struct alignas(64) ThreadPool::Worker {
  std::atomic<Word> word = Word::idle;
  int index = 0;
  Job job = {};
  std::exception_ptr error;

  void run_job() {
    try {
      job.run(index);
    } catch (...) {
      error = std::current_exception();
    }
  }

  void loop() {
    inside = true;
    while (wait_for_change(word, Word::idle, Word::asleep) != Word::finished) {
      if (!take(word, Word::running)) continue;  // the caller was faster
      run_job();
      change(word, Word::idle, Word::awaited);
    }
  }
};

struct ThreadPool::State {
  explicit State(int threads) : workers(static_cast<std::size_t>(std::max(1, threads))) {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
    static_cast<void>(registered);
    born = forks;
    cpus = allowed_cpus();
    handles.reserve(workers.size());  // no allocation fails once threads run
    try {
      for (std::size_t i = 1; i < workers.size(); ++i) {
        workers[i].index = static_cast<int>(i);
        handles.emplace_back(&Worker::loop, &workers[i]);
      }
    } catch (const std::system_error&) {  // no more threads to be had
    }
    if (cpus.size() != handles.size() + 1) cpus.clear();
    if (const auto own = std::find(cpus.begin(), cpus.end(), sched_getcpu()); own != cpus.end())
      std::swap(cpus.front(), *own);
    for (std::size_t i = 1; i < cpus.size(); ++i) pin(handles[i - 1], cpus[i]);
  }

  ~State() {
    for (std::size_t i = 1; i <= handles.size(); ++i)
      change(workers[i].word, Word::finished, Word::asleep);
    for (std::thread& handle : handles) handle.join();
  }

  // A caller and a worker on the same core would take turns for as long as the scheduler looks
  // away.
  void leave_core_to_caller() {
    if (cpus.empty() || cpus.front() == sched_getcpu()) return;
    const auto taken = std::find(cpus.begin() + 1, cpus.end(), sched_getcpu());
    if (taken == cpus.end()) return;
    std::thread& worker = handles[static_cast<std::size_t>(taken - cpus.begin()) - 1];
    if (pin(worker, cpus.front())) std::swap(cpus.front(), *taken);
  }

  std::mutex mutex;                  // held by the caller of the moment
  std::vector<Worker> workers;       // [0]: the caller
  std::vector<std::thread> handles;  // of workers[1...]
  std::vector<int> cpus;  // [0]: left to the caller; [i]: of workers[i]. Empty: workers float
  int born;               // `forks` of the process that has the threads
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(threads)) {}

ThreadPool::~ThreadPool() {
  // The handles of the parent's threads mean nothing here, or threads made since.
  if (state_->born != forks) static_cast<void>(state_.release());
}

int ThreadPool::threads() const { return static_cast<int>(state_->handles.size()) + 1; }

int ThreadPool::sleeping_workers() const {
  return static_cast<int>(
      std::count_if(state_->workers.begin(), state_->workers.end(),
                    [](const Worker& worker) { return worker.word == Word::asleep; }));
}

void ThreadPool::run_parts(Job job) {
  job.stride = std::min(job.parts, threads());
  if (job.stride <= 1 || inside || state_->born != forks) {
    job.stride = 1;
    job.run(0);
    return;
  }
  std::vector<Worker>& workers = state_->workers;
  const auto used = static_cast<std::size_t>(job.stride);
  const std::lock_guard lock(state_->mutex);
  state_->leave_core_to_caller();
  for (std::size_t i = 1; i < used; ++i) {
    workers[i].job = job;
    change(workers[i].word, Word::job, Word::asleep);
  }
  inside = true;
  workers[0].job = job;
  workers[0].run_job();
  for (std::size_t i = 1; i < used; ++i) {
    if (take(workers[i].word, Word::idle)) workers[i].run_job();
  }
  inside = false;
  std::exception_ptr error;
  for (std::size_t i = 0; i < used; ++i) {
    if (i > 0) wait_for_change(workers[i].word, Word::running, Word::awaited);
    if (std::exception_ptr own = std::exchange(workers[i].error, nullptr); own && !error)
      error = std::move(own);
  }
  if (error) std::rethrow_exception(error);
}

namespace {

thread_local const Context* scoped_context = nullptr;

}  // namespace

ContextScope::ContextScope(const Context& context) : context_(context), outer_(scoped_context) {
  scoped_context = &context_;
}

ContextScope::~ContextScope() { scoped_context = outer_; }

const Context& default_context() {
  if (scoped_context != nullptr) return *scoped_context;
  static const Context context{new ThreadPool(allowed_threads().threads)};
  return context;
}

Range split(std::size_t count, std::size_t step, int parts, int part) {
  assert(step >= 1 && parts >= 1 && part >= 0 && part < parts);
  const auto n = static_cast<std::size_t>(parts);
  const std::size_t steps = count / step + (count % step != 0);
  // The last pieces have one step more than the others, as the very last step may be a short one.
  const std::size_t shorter = n - steps % n;
  const auto begin = [&](std::size_t i) {
    const std::size_t at = i * (steps / n) + (i > shorter ? i - shorter : 0);
    return at == steps ? count : at * step;
  };
  return {begin(static_cast<std::size_t>(part)), begin(static_cast<std::size_t>(part) + 1)};
}

}  // namespace octavo
