// Work on an accelerator that is recorded once and then started as a whole: CUDA graphs.
//
//   std::shared_ptr<Graphs> graphs = make_graphs(device);        // null: there are none, run it eagerly
//   std::unique_ptr<Graph> graph = graphs->capture([&] { ... });
//   graph->replay();
//
// train/cuda/graph.cpp makes them, in programs that link it; train/no_graphs.cpp stands in for it in all
// others. One thread.
#pragma once
#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace penstock::train {

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  virtual ~Graph() = default;
  /// Puts all of it on the device's current stream, always the same one: graphs share the memory of their
  /// temporaries. Reads and writes the tensors that `work` did, where they lie, and draws random numbers as
  /// it would. Never waits.
  virtual void replay() = 0;
};

class Graphs {
 public:
  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  virtual ~Graphs() = default;
  /// Runs `work` exactly once, as libraries make at their first call what cannot be made while recording;
  /// then calls it again and records what it puts on the device, which does not run. All that it leaves
  /// behind must be in tensors that exist when it has run once, and they must stay where they are. Waits for
  /// the device. Throws what `work` throws when it runs, and Error for work that cannot be recorded.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;
};

using GraphsMaker = std::function<std::shared_ptr<Graphs>(c10::Device)>;

/// Null on the CPU, and in a program that does not link CUDA.
std::shared_ptr<Graphs> make_graphs(c10::Device device);
/// Whether this program can compute on CUDA, where there is such a device.
bool links_cuda();

}  // namespace penstock::train
