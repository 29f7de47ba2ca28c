#include "train/graph.h"

#include <exception>
#include <string>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include "penstock/core/error.h"

namespace penstock::train {
namespace {

class CudaGraph final : public Graph {
 public:
  void replay() override { graph.replay(); }
  at::cuda::CUDAGraph graph;
};

std::string reason(const std::exception& e) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&e);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : e.what();
}

class CudaGraphs final : public Graphs {
 public:
  explicit CudaGraphs(c10::Device device)
      : stream_(c10::cuda::getStreamFromPool(false, device.index())), pool_(at::cuda::graph_pool_handle()) {}

  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    // The default stream cannot be captured. Gradients are added up on the stream on which they were added
    // up first, so the run before is on this one too.
    const c10::StreamGuard current(stream_.unwrap());  // and its device
    c10::cuda::device_synchronize();
    work();
    c10::cuda::device_synchronize();
    // A graph has memory of its own: what that run has used would lie idle beside it.
    c10::cuda::CUDACachingAllocator::emptyCache();
    auto made = std::make_unique<CudaGraph>();
    record(made->graph, work);
    return made;
  }

 private:
  void record(at::cuda::CUDAGraph& graph, const std::function<void()>& work) const {
    std::string failed;
    // Thread-local: the feed's copies go on meanwhile, on a thread of their own.
    graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (const std::exception& e) {
      failed = reason(e);
    }
    try {
      graph.capture_end();
    } catch (const std::exception& e) {
      if (failed.empty()) failed = reason(e);
    }
    if (!failed.empty())
      throw Error(fmt::format(
          "plan_steps: a step that is captured in a CUDA graph must not read a value back from the "
          "device, but this one cannot be captured ({}); plan_steps: false runs it without",
          failed));
  }

  c10::cuda::CUDAStream stream_;
  at::cuda::MempoolId_t pool_;
};

}  // namespace

std::shared_ptr<Graphs> make_graphs(c10::Device device) {
  return device.is_cuda() ? std::make_shared<CudaGraphs>(device) : nullptr;
}

bool links_cuda() { return true; }

}  // namespace penstock::train
