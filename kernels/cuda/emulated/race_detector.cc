#include "kernels/cuda/emulated/race_detector.h"

#include <algorithm>

#include "kernels/cuda/emulated/code_place.h"

namespace refrain::kernels::cuda::emulated {
namespace {

constexpr int kGroups = 8;            // warpgroups of the largest block
constexpr size_t kKeptPages = 16384;  // 1.1 GB of cells

uintptr_t Address(const void* at) { return reinterpret_cast<uintptr_t>(at); }

const char* Verb(const RaceAccess& access) {
  return access.atomic ? "updates" : access.write ? "writes" : "reads";
}

}  // namespace

bool& RaceDetector::instrumented() {
  static bool instrumented = false;
  return instrumented;
}

// --- Kernels and blocks ---

void RaceDetector::NoteOperation(const void* queue) {
  if (queue == chain_queue_) chain_begin_ = kernels_.size();
}

void RaceDetector::BeginKernel(const void* queue, bool early, int threads) {
  if (!early || queue != chain_queue_) chain_begin_ = kernels_.size();
  chain_queue_ = queue;
  early_ = early && kernels_.size() > chain_begin_;
  kernels_.push_back({run_ + 1});
  thread_count_ = threads;
  atomics_.clear();
}

void RaceDetector::BeginBlock(const std::byte* shared, size_t shared_bytes) {
  ++run_;
  global_cells_.Limit(kKeptPages);
  threads_.assign(thread_count_, {});
  groups_.assign((thread_count_ + 127) / 128, {});
  barriers_.clear();
  shared_ = shared;
  shared_bytes_ = shared_bytes;
  // Cells of earlier runs count as empty.
  if (shared_cells_.size() < (shared_bytes + 3) / 4) shared_cells_.resize((shared_bytes + 3) / 4);
}

// --- Order ---

ClockPtr RaceDetector::Release(const int* threads, size_t count) {
  ClockPtr joined, proxied, fenced, loose;
  for (size_t i = 0; i < count; ++i) {
    joined = joiner_.Join(joined, threads_[threads[i]].clock);
    proxied = joiner_.Join(proxied, threads_[threads[i]].proxied_clock);
    fenced = joiner_.Join(fenced, threads_[threads[i]].fenced);
    loose = joiner_.Join(loose, threads_[threads[i]].loose);
  }
  auto released = joined == nullptr ? std::make_shared<Clock>() : std::make_shared<Clock>(*joined);
  released->seen.resize(std::max<size_t>(released->seen.size(), 2 * thread_count_ + kGroups));
  if (proxied != nullptr) Clock::Raise(released->proxied, proxied->seen);
  released->fenced = joiner_.Join(released->fenced, fenced);
  released->loose = joiner_.Join(released->loose, loose);
  for (size_t i = 0; i < count; ++i) {
    const int at = threads[i];
    ThreadState& thread = threads_[at];
    Clock::Raise(released->seen, at, thread.epoch++);
    Clock::Raise(released->seen, CopyAgent(at), thread.copies_done);
    Clock::Raise(released->seen, GroupAgent(at / 128), groups_[at / 128].done);
    if (thread.proxied_epoch > 0) Clock::Raise(released->proxied, at, thread.proxied_epoch);
  }
  return released;
}

void RaceDetector::Sync(const std::vector<int>& threads) {
  const ClockPtr together = Release(threads.data(), threads.size());
  for (const int at : threads) {
    ThreadState& thread = threads_[at];
    thread.clock = together;
    thread.proxied_clock = nullptr;
    thread.proxied_epoch = 0;
  }
}

void RaceDetector::Acquire(int thread, const ClockPtr& clock) {
  threads_[thread].clock = joiner_.Join(threads_[thread].clock, clock);
}

void RaceDetector::ProxyFence(int thread) {
  ThreadState& state = threads_[thread];
  state.proxied_clock = state.clock;
  state.proxied_epoch = state.epoch++;
}

void RaceDetector::WaitForKernelBefore(int thread) {
  ThreadState& state = threads_[thread];
  kernels_.back().waited = true;
  if (!early_ || (state.clock != nullptr && state.clock->kernel_before_ended)) return;
  auto after =
      state.clock == nullptr ? std::make_shared<Clock>() : std::make_shared<Clock>(*state.clock);
  after->kernel_before_ended = true;
  state.clock = std::move(after);
}

// What an atomic operation behind it releases, and what one before it saw.
void RaceDetector::Fence(int thread) {
  ThreadState& state = threads_[thread];
  ClockPtr loose = std::exchange(state.loose, nullptr);
  if (state.clock != nullptr) loose = joiner_.Join(loose, state.clock->loose);
  if (loose != nullptr) {
    auto clock = std::make_shared<Clock>();
    if (state.clock != nullptr) *clock = *state.clock;
    clock->loose = nullptr;
    for (const auto& [run, other] : loose->others) {
      if (run == run_) {
        Clock::Raise(clock->seen, other->seen);
        Clock::Raise(clock->proxied, other->proxied);
      } else {
        ClockPtr& known = clock->others[run];
        known = joiner_.Join(known, other);
      }
    }
    clock->kernel_before_ended |= loose->kernel_before_ended;
    state.clock = std::move(clock);
  }
  // In the form that other blocks can join: only `others`.
  auto own = std::make_shared<Clock>(*Release(&thread, 1));
  auto fenced = std::make_shared<Clock>();
  fenced->others = std::exchange(own->others, {});
  fenced->kernel_before_ended = own->kernel_before_ended;
  own->fenced = own->loose = nullptr;
  fenced->others[run_] = std::move(own);
  state.fenced = std::move(fenced);
}

bool RaceDetector::OrderedInRun(const RaceAccess& before, int thread) const {
  const ThreadState& state = threads_[thread];
  if (before.agent == thread) return true;
  if (before.agent == CopyAgent(thread)) return before.epoch <= state.copies_done;
  if (before.agent == GroupAgent(thread / 128)) return before.epoch <= groups_[thread / 128].done;
  return state.clock != nullptr && Clock::At(state.clock->seen, before.agent) >= before.epoch;
}

bool RaceDetector::OrderedKernels(const RaceAccess& before, bool waited) const {
  size_t kernel = kernels_.size() - 1;
  // Back over kernels that are known to have ended, as far as each waited for the one before it.
  while (kernel > chain_begin_ && waited) {
    --kernel;
    if (before.run >= kernels_[kernel].first_run) return true;
    waited = kernels_[kernel].waited;
  }
  return kernel == chain_begin_ ? before.run < kernels_[kernel].first_run : false;
}

bool RaceDetector::Ordered(const RaceAccess& before, int thread) const {
  if (before.run == run_) return OrderedInRun(before, thread);
  const Clock* const clock = threads_[thread].clock.get();
  if (before.run < kernels_.back().first_run) {
    return OrderedKernels(before, clock != nullptr && clock->kernel_before_ended);
  }
  if (clock == nullptr) return false;
  const auto other = clock->others.find(before.run);
  return other != clock->others.end() &&
         Clock::At(other->second->seen, before.agent) >= before.epoch;
}

bool RaceDetector::Proxied(const RaceAccess& before, int thread) const {
  const ThreadState& state = threads_[thread];
  if (before.async || !before.write) return true;
  if (before.agent == thread && before.epoch <= state.proxied_epoch) return true;
  for (const auto& [clock, member] :
       {std::pair(&state.clock, &Clock::proxied), std::pair(&state.proxied_clock, &Clock::seen)}) {
    if (*clock != nullptr && Clock::At(((*clock).get())->*member, before.agent) >= before.epoch) {
      return true;
    }
  }
  return false;
}

// --- Accesses ---

bool RaceDetector::IsShared(const void* at) const {
  return Address(at) >= Address(shared_) && Address(at) < Address(shared_) + shared_bytes_;
}

template <class OrderedFn>
std::optional<std::string> RaceDetector::Touch(const void* at, size_t size, RaceAccess access,
                                               const OrderedFn& ordered) {
  const uintptr_t begin = Address(at), end = begin + size;
  const bool shared = IsShared(at);
  const uint32_t first_run = shared   ? run_
                             : early_ ? kernels_[chain_begin_].first_run
                                      : kernels_.back().first_run;
  access.run = run_;
  for (uintptr_t word = begin / 4 * 4; word < end; word += 4) {
    access.mask = 0;
    for (uintptr_t byte = std::max(word, begin); byte < std::min(word + 4, end); ++byte) {
      access.mask |= 1 << (byte - word);
    }
    RaceCell& cell = shared ? shared_cells_[(word - Address(shared_)) / 4] : global_cells_.Of(word);
    const RaceAccess* const before = cell.Touch(access, first_run, ordered);
    if (before == nullptr) continue;
    const std::string where =
        shared ? "byte " + std::to_string(word - Address(shared_)) + " of shared memory"
               : "device memory";
    const bool proxies = shared && access.async && before->write && !before->async;
    return "race on " + where + ": " + Describe(access) + ", after " + Describe(*before) +
           ": nothing orders the two" + (proxies ? ", or no proxy fence is between them" : "");
  }
  return std::nullopt;
}

std::optional<std::string> RaceDetector::Access(int thread, const void* at, size_t size,
                                                AccessKind kind, const void* place) {
  if (IsShared(at) && Address(at) + size > Address(shared_) + shared_bytes_) {
    return "an access beyond the end of the block's shared memory" +
           DescribePlace(static_cast<uint32_t>(Address(place)));
  }
  ThreadState& state = threads_[thread];
  RaceAccess access;
  access.agent = static_cast<uint16_t>(thread);
  access.epoch = state.epoch;
  access.place = static_cast<uint32_t>(Address(place));
  access.write = kind != AccessKind::kRead;
  access.atomic = kind == AccessKind::kAtomic;
  auto race =
      Touch(at, size, access, [&](const RaceAccess& before) { return Ordered(before, thread); });
  if (race.has_value() || kind != AccessKind::kAtomic) return race;
  ClockPtr& released = atomics_[at];
  state.loose = joiner_.Join(state.loose, released);
  if (state.clock != nullptr) released = joiner_.Join(released, state.clock->fenced);
  released = joiner_.Join(released, state.fenced);
  return std::nullopt;
}

// --- Barriers in shared memory ---

void RaceDetector::InitBarrier(const void* barrier) {
  const auto [at, added] = barriers_.try_emplace(
      barrier, BarrierState{2 * thread_count_ + kGroups + static_cast<int>(barriers_.size())});
  if (added) return;
  at->second.arriving = nullptr;
  at->second.ended = nullptr;
}

void RaceDetector::ArriveAtBarrier(int thread, const void* barrier) {
  BarrierState& state = barriers_.at(barrier);
  state.arriving = joiner_.Join(state.arriving, Arrive(thread));
}

void RaceDetector::EndPhase(const void* barrier) {
  BarrierState& state = barriers_.at(barrier);
  // Arrivals of earlier phases, too: all of them change one word, one behind the other.
  const ClockPtr arrived = joiner_.Join(state.ended, state.arriving);
  auto ended = arrived == nullptr ? std::make_shared<Clock>() : std::make_shared<Clock>(*arrived);
  Clock::Raise(ended->seen, state.agent, ++state.phases);
  state.ended = std::move(ended);
  state.arriving = nullptr;
}

void RaceDetector::PassBarrier(int thread, const void* barrier) {
  Acquire(thread, barriers_.at(barrier).ended);
}

// --- Copies and products ---

std::optional<std::string> RaceDetector::BulkCopy(int thread, void* to, const void* from,
                                                  size_t bytes, const void* barrier,
                                                  const void* place) {
  const BarrierState& state = barriers_.at(barrier);
  RaceAccess access;
  access.agent = static_cast<uint16_t>(state.agent);
  access.epoch = state.phases + 1;
  access.place = static_cast<uint32_t>(Address(place));
  access.async = true;
  auto race =
      Touch(from, bytes, access, [&](const RaceAccess& before) { return Ordered(before, thread); });
  if (race.has_value()) return race;
  access.write = true;
  return Touch(to, bytes, access, [&](const RaceAccess& before) {
    return Ordered(before, thread) && Proxied(before, thread);
  });
}

std::optional<std::string> RaceDetector::CopyAsync(int thread, void* to, const void* from,
                                                   size_t bytes, const void* place) {
  RaceAccess access;
  access.agent = static_cast<uint16_t>(CopyAgent(thread));
  access.epoch = threads_[thread].copies_committed + 1;
  access.place = static_cast<uint32_t>(Address(place));
  access.async = true;
  const auto ordered = [&](const RaceAccess& before) { return Ordered(before, thread); };
  if (from != nullptr) {
    if (auto race = Touch(from, bytes, access, ordered); race.has_value()) return race;
  }
  access.write = true;
  return Touch(to, bytes, access, ordered);
}

void RaceDetector::WaitForCopies(int thread, int pending) {
  ThreadState& state = threads_[thread];
  const auto groups = static_cast<uint32_t>(pending);
  if (state.copies_committed > groups) {
    state.copies_done = std::max(state.copies_done, state.copies_committed - groups);
  }
}

void RaceDetector::BeginProduct(int warpgroup) {
  std::vector<int>& readers = groups_[warpgroup].readers;
  readers.clear();
  for (int at = warpgroup * 128; at < warpgroup * 128 + 128; ++at) {
    const ThreadState& thread = threads_[at];
    const bool known = std::any_of(readers.begin(), readers.end(), [&](int reader) {
      const ThreadState& other = threads_[reader];
      return other.clock == thread.clock && other.proxied_clock == thread.proxied_clock;
    });
    if (!known) readers.push_back(at);
  }
}

std::optional<std::string> RaceDetector::ReadByProduct(int warpgroup, size_t offset) {
  const Warpgroup& group = groups_[warpgroup];
  RaceAccess access;
  access.agent = static_cast<uint16_t>(GroupAgent(warpgroup));
  access.epoch = group.committed + 1;
  access.async = true;
  return Touch(shared_ + offset, 2, access, [&](const RaceAccess& before) {
    if (before.agent == access.agent) return true;
    return std::all_of(group.readers.begin(), group.readers.end(), [&](int reader) {
      const ClockPtr& clock = threads_[reader].clock;
      return clock != nullptr && Clock::At(clock->seen, before.agent) >= before.epoch &&
             Proxied(before, reader);
    });
  });
}

void RaceDetector::WaitForProducts(int warpgroup, int pending) {
  Warpgroup& group = groups_[warpgroup];
  const auto groups = static_cast<uint32_t>(pending);
  if (group.committed > groups) group.done = std::max(group.done, group.committed - groups);
}

// --- Words ---

std::string RaceDetector::Describe(const RaceAccess& access) const {
  const int agent = access.agent;
  std::string who;
  if (agent < thread_count_) {
    who = "thread " + std::to_string(agent);
  } else if (agent < 2 * thread_count_) {
    who = "a copy of thread " + std::to_string(agent - thread_count_);
  } else if (agent < 2 * thread_count_ + kGroups) {
    who = "a product of warpgroup " + std::to_string(agent - 2 * thread_count_);
  } else {
    who = "a bulk copy";
  }
  if (access.run < kernels_.back().first_run) {
    who += " of a kernel before";
  } else if (access.run != run_) {
    who += " of block " + std::to_string(access.run - kernels_.back().first_run);
  }
  return who + " " + Verb(access) + DescribePlace(access.place);
}

}  // namespace refrain::kernels::cuda::emulated
