#include <algorithm>
#include <deque>
#include <limits>

#include "engine/admission_order.h"
#include "engine/engine_loop.h"

namespace refrain::engine {
namespace {

// All of the prompt that its request's other choices can share.
bool HasPrompt(const SequenceState& choice, const kvcache::CacheManager& cache) {
  return choice.phase == SequencePhase::kRunning && cache.Contains(choice.id) &&
         cache.published_tokens(choice.id) >= choice.request->prompt_tokens() - 1;
}

// With each one that is held, who computes its next chunk. Once per plan, of what may be all that
// wait: most have the producer of the one before.
template <typename Visit>
void ForEachHeld(SchedulerSnapshot* snapshot, Visit visit) {
  auto producer = snapshot->running.end();
  for (const WaitingEntry& waiting : snapshot->waiting) {
    if (!waiting.held) continue;
    if (producer == snapshot->running.end() || producer->sequence != waiting.producer) {
      producer = FindEntry(snapshot->running, waiting.producer);
    }
    visit(waiting, &*producer);
  }
}

}  // namespace

kvcache::Namespace EngineLoop::NamespaceOf(const Request& request) const {
  return {.tenant = options_.isolate_tenants ? request.tenant : "",
          .cache_salt = request.cache_salt};
}

// The last token is computed again: its row is where the next choice is made.
int32_t EngineLoop::WantedTokens(const SequenceState& sequence) const {
  return sequence.known_tokens() - 1;
}

const SequenceState* EngineLoop::ForkSource(const SequenceState& sequence) const {
  if (sequence.request->prompt_tokens() == 1) return nullptr;
  // With its own answer in the cache there is more to be found there.
  if (!sequence.generated.empty() && parts_.cache->options().prefix_cache) return nullptr;
  for (const auto& other : sequence.request->choices()) {
    if (HasPrompt(*other, *parts_.cache)) return other.get();
  }
  return nullptr;
}

// Where nothing stays in the cache, each of those that wait would compute the prompt again. It
// overtakes nobody: it is what its tenant would start next.
bool EngineLoop::HandOver(const SequenceState& ended) {
  kvcache::CacheManager& cache = *parts_.cache;
  const RunningRequest& request = *ended.request;
  if (cache.options().prefix_cache || !HasPrompt(ended, cache)) return false;
  bool some_wait = false;
  for (const auto& other : request.choices()) {
    if (other.get() != &ended && HasPrompt(*other, cache)) return false;
    some_wait = some_wait || other->phase == SequencePhase::kWaiting;
  }
  if (!some_wait) return false;
  const WaitingEntry* const next = FirstToStart(snapshot_, request.tenant());
  if (next == nullptr) return false;
  const std::shared_ptr<SequenceState> heir = sequences_.at(next->sequence);
  if (heir->request != &request) return false;
  const auto left = FindEntry(snapshot_.running, ended.id);
  const int32_t turn_begin = heir->known_tokens() - (ended.known_tokens() - left->turn_begin);
  snapshot_.running.erase(left);
  cache.HandOver(heir->id, ended.id, request.prompt_tokens() - 1);
  StopProducing(ended.id);
  StartRunning(heir, /*goes_on=*/false);
  FindEntry(snapshot_.running, heir->id)->turn_begin = turn_begin;  // the turn is one
  return true;
}

size_t EngineLoop::PresentKeys(const SequenceState& sequence, int32_t found_tokens) const {
  const PromptKeys& keys = sequence.request->prompt_keys();
  if (found_tokens >= sequence.request->prompt_tokens() - 1) return keys.all.size();
  if (!parts_.cache->options().prefix_cache) return 0;  // a fork has all of it
  return std::min(keys.whole_chunks,
                  static_cast<size_t>(found_tokens / snapshot_.limits.chunk_tokens));
}

// A whole chunk that ends with the prompt others may need to its end, as theirs goes on.
size_t EngineLoop::PublishedKeys(const SequenceState& sequence, int32_t end) const {
  const PromptKeys& keys = sequence.request->prompt_keys();
  if (keys.has_tail() || !parts_.cache->options().prefix_cache) return PresentKeys(sequence, end);
  return static_cast<size_t>(end / snapshot_.limits.chunk_tokens);
}

bool EngineLoop::SharesRunning(const WaitingEntry& entry, int32_t unused_chunks) const {
  const int64_t unused_tokens = int64_t{unused_chunks} * snapshot_.limits.chunk_tokens;
  const int64_t running_tokens = entry.shared_tokens - unused_tokens;
  return 2 * running_tokens >= entry.prefill_tokens;
}

void EngineLoop::Look(SequenceState* sequence) {
  const RunningRequest& request = *sequence->request;
  const int32_t wanted_tokens = WantedTokens(*sequence);
  const auto entry = FindEntry(snapshot_.waiting, sequence->id);
  entry->prefill_tokens = sequence->known_tokens();
  const bool forks = ForkSource(*sequence) != nullptr;
  if (forks || !parts_.cache->options().prefix_cache) {
    sequence->match = {};  // never current: whether there is a source changes at any time
    entry->shared_tokens = forks ? request.prompt_tokens() - 1 : 0;
    entry->idle_chunks = 0;
  } else {
    std::span<const TokenId> known = request.prompt();
    if (!sequence->generated.empty()) {
      known_ids_.assign(known.begin(), known.end());
      known_ids_.insert(known_ids_.end(), sequence->generated.begin(), sequence->generated.end());
      known = known_ids_;
    }
    sequence->match = parts_.cache->MatchAgain(
        sequence->match, NamespaceOf(request.request()),
        {.ids = known.first(static_cast<size_t>(wanted_tokens)), .positions = {}});
    entry->shared_tokens = sequence->match.num_tokens;
    entry->idle_chunks = sequence->match.idle_chunks;
  }
  Await(*sequence, *entry);
  Describe(sequence, &*entry);
}

void EngineLoop::Await(const SequenceState& sequence, const WaitingEntry& entry) {
  const int64_t rank = AdmissionOrder::RankOf(entry, snapshot_);
  const kvcache::WaitingPlace place =
      lines_.Place(entry.sequence, entry.tenant, rank, entry.prefill_tokens);
  parts_.cache->Await(entry.sequence, place, sequence.match);
}

void EngineLoop::Describe(SequenceState* sequence, WaitingEntry* entry) {
  const RunningRequest& request = *sequence->request;
  entry->replayed_tokens = std::max(0, std::min(entry->shared_tokens, request.prompt_tokens() - 1) -
                                           request.FirstWantedPromptRow());
  entry->shares_running = SharesRunning(*entry, sequence->match.unused_chunks);
  const PrefixKeys& keys = request.prompt_keys().all;
  const size_t present = PresentKeys(*sequence, entry->shared_tokens);
  entry->held = pending_.Wait(sequence->id, keys, present);
  if (entry->held) entry->producer = *pending_.ProducerOf(sequence->id);
  entry->next_chunk_key = present < keys.size() ? keys[present] : 0;
}

// As Look, by what the keys tell, until it is looked for: to match them all in one turn would hold
// up who runs. `in_use`: who computed the chunks runs.
void EngineLoop::Release(const std::vector<PendingPrefixes::Released>& released, bool in_use) {
  for (const auto& [id, present] : released) {
    SequenceState* const sequence = sequences_.at(id).get();
    if (!parts_.cache->options().prefix_cache) {
      Look(sequence);  // takes no time there
      continue;
    }
    sequence->match.stamp = 0;
    const RunningRequest& request = *sequence->request;
    const int64_t tokens = present > request.prompt_keys().whole_chunks
                               ? request.prompt_tokens() - 1
                               : static_cast<int64_t>(present) * snapshot_.limits.chunk_tokens;
    const auto entry = FindEntry(snapshot_.waiting, id);
    entry->shared_tokens =
        std::max(entry->shared_tokens,
                 static_cast<int32_t>(std::min<int64_t>(tokens, WantedTokens(*sequence))));
    entry->idle_chunks = 0;
    sequence->match.unused_chunks = in_use ? 0 : static_cast<int32_t>(present);
    Describe(sequence, &*entry);
  }
}

void EngineLoop::RefreshWaiting() {
  std::deque<WaitingEntry>& waiting = snapshot_.waiting;
  const auto refresh = [this](WaitingEntry& entry) {
    SequenceState* const sequence = sequences_.at(entry.sequence).get();
    if (entry.held) return;
    if (!parts_.cache->IsCurrent(sequence->match)) return Look(sequence);
    Await(*sequence, entry);  // it may have aged, or there is room for it now
    // Who else holds the chunks of a match may have changed.
    if (entry.shared_tokens > 0) {
      parts_.cache->CountIdleAgain(&sequence->match);
      entry.idle_chunks = sequence->match.idle_chunks;
      entry.shares_running = SharesRunning(entry, sequence->match.unused_chunks);
    }
  };
  for (size_t i = 0; i < std::min(waiting.size(), kRefreshedFirst); ++i) refresh(waiting[i]);
  if (waiting.size() <= kRefreshedFirst) return;
  // By id: places change as sequences come and go.
  auto next = FindEntry(waiting, SequenceId{static_cast<uint64_t>(last_refreshed_) + 1});
  for (size_t i = 0; i < kRefreshedInTurn; ++i) {
    if (next == waiting.end()) next = waiting.begin();
    refresh(*next);
    last_refreshed_ = next->sequence;
    ++next;
  }
}

// Others need none of the rows that it replays: they would wait for more than they lack.
void EngineLoop::StartProducing(SequenceState* sequence) {
  const int32_t to_replay = sequence->replay_end - sequence->replay_next;
  if (sequence->produces || to_replay > snapshot_.limits.step_token_budget) return;
  std::vector<SequenceId> held;
  sequence->produces =
      pending_.Start(sequence->id, sequence->request->prompt_keys().all,
                     PresentKeys(*sequence, parts_.cache->published_tokens(sequence->id)), &held);
  for (const SequenceId id : held) {
    const auto entry = FindEntry(snapshot_.waiting, id);
    entry->held = true;
    entry->producer = sequence->id;
  }
}

void EngineLoop::StopProducing(SequenceId id) {
  std::vector<PendingPrefixes::Released> released;
  pending_.Stop(id, &released);
  Release(released, /*in_use=*/false);
}

// Who has aged comes before all who have not, also once it runs: else it would give up its chunks
// for better ones, again and again. Who waits for a producer's chunks lends it its priority, as
// that is now.
void EngineLoop::InheritPriorities() {
  const auto priority_now = [this](int64_t since_step, int64_t priority) {
    const bool aged = snapshot_.step - since_step >= snapshot_.limits.ageing_steps;
    return aged ? std::numeric_limits<int64_t>::min() : priority;
  };
  for (RunningEntry& entry : snapshot_.running) {
    const SequenceState& sequence = *sequences_.at(entry.sequence);
    entry.priority = priority_now(sequence.waits_since_step.value_or(snapshot_.step),
                                  sequence.request->request().priority);
  }
  if (pending_.held_count() == 0) return;
  ForEachHeld(&snapshot_, [&](const WaitingEntry& waiting, RunningEntry* producer) {
    producer->priority =
        std::min(producer->priority, priority_now(waiting.since_step, waiting.priority));
  });
}

// Else a tenant that has been served least would wait until it is the producer's turn.
void EngineLoop::InheritTurns() {
  for (RunningEntry& entry : snapshot_.running) entry.lender.reset();
  if (snapshot_.tenants.empty() || pending_.held_count() == 0) return;
  const auto served = [this](int32_t tenant) { return snapshot_.tenants[tenant].served; };
  ForEachHeld(&snapshot_, [&](const WaitingEntry& waiting, RunningEntry* producer) {
    if (served(waiting.tenant) < served(producer->turn_of())) producer->lender = waiting.tenant;
  });
}

// Else whoever is older than the producer, and younger than one that is held for it, would come
// before both.
void EngineLoop::InheritAges() {
  for (RunningEntry& entry : snapshot_.running) entry.older.reset();
  if (pending_.held_count() == 0) return;
  // As a rule all that wait are younger, of whom there may be thousands.
  const SequenceId oldest = snapshot_.waiting.front().sequence;
  if (std::ranges::all_of(snapshot_.running, [oldest](const RunningEntry& entry) {
        return entry.sequence < oldest;
      })) {
    return;
  }
  ForEachHeld(&snapshot_, [](const WaitingEntry& waiting, RunningEntry* producer) {
    if (waiting.tenant == producer->turn_of() && waiting.sequence < producer->age()) {
      producer->older = waiting.sequence;
    }
  });
}

}  // namespace refrain::engine
