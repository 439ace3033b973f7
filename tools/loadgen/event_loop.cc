#include "tools/loadgen/event_loop.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <utility>

namespace refrain::loadgen {

namespace asio = boost::asio;

struct AsioLoop::State {
  asio::io_context context{1};
  asio::steady_timer timer{context};
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::multimap<double, std::function<void()>> calls;  // by time
  double armed_s = 0;
  bool armed = false;
  int64_t runs = 0;  // that have ended

  double Now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // One timer for the next call of all.
  void Arm() {
    if (calls.empty() || (armed && armed_s <= calls.begin()->first)) return;
    armed = true;
    armed_s = calls.begin()->first;
    timer.expires_at(start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                 std::chrono::duration<double>(armed_s)));
    timer.async_wait([this](const boost::system::error_code& error) {
      if (error) return;  // armed anew for an earlier call
      armed = false;
      CallDue();
      Arm();
    });
  }

  // Only what is due now: a call that adds another must not keep sockets waiting. Nothing behind
  // one that stops the loop: it may have ended what the others are for.
  void CallDue() {
    const double now = Now();
    while (!context.stopped() && !calls.empty() && calls.begin()->first <= now) {
      const auto call = std::move(calls.begin()->second);
      calls.erase(calls.begin());
      call();
    }
  }
};

AsioLoop::AsioLoop() : state_(std::make_unique<State>()) {}
AsioLoop::~AsioLoop() = default;

double AsioLoop::NowS() const { return state_->Now(); }

void AsioLoop::CallAt(double at_s, std::function<void()> call) {
  state_->calls.emplace(at_s, std::move(call));
  state_->Arm();
}

void AsioLoop::Post(std::function<void()> call) { asio::post(state_->context, std::move(call)); }

void AsioLoop::Run() {
  const auto work = asio::make_work_guard(state_->context);
  state_->context.restart();
  state_->context.run();
  state_->calls.clear();
  ++state_->runs;
}

int64_t AsioLoop::runs() const { return state_->runs; }

void AsioLoop::Stop() { state_->context.stop(); }

asio::io_context& AsioLoop::context() { return state_->context; }

}  // namespace refrain::loadgen
