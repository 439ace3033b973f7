#ifndef REFRAIN_TOOLS_LOADGEN_EVENT_LOOP_H_
#define REFRAIN_TOOLS_LOADGEN_EVENT_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace refrain::loadgen {

// Time and the thread on which everything runs; tests bring their own, whose time they set. One
// thread, but for Post.
class EventLoop {
 public:
  virtual ~EventLoop() = default;

  virtual double NowS() const = 0;  // since some time before
  // Runs `call` at that time or soon after, in order of the times.
  virtual void CallAt(double at_s, std::function<void()> call) = 0;
  virtual void Post(std::function<void()> call) = 0;  // from any thread
  // Returns after Stop, having dropped what was to be called later.
  virtual void Run() = 0;
  virtual void Stop() = 0;
};

// The event loop of sockets.
class AsioLoop final : public EventLoop {
 public:
  AsioLoop();
  ~AsioLoop() override;

  double NowS() const override;
  void CallAt(double at_s, std::function<void()> call) override;
  void Post(std::function<void()> call) override;
  void Run() override;
  void Stop() override;

  // Runs that have ended, each of which dropped the calls that were left.
  int64_t runs() const;
  boost::asio::io_context& context();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_EVENT_LOOP_H_
