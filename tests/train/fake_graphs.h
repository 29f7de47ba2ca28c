// Graphs without a device: a replay is the captured work once more, in the memory that it was captured with.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/graph.h"

namespace penstock::train {

struct FakeGraphs final : Graphs {
  struct One final : Graph {
    One(FakeGraphs& of, std::size_t i, std::function<void()> w) : graphs(of), index(i), work(std::move(w)) {}
    void replay() override {
      graphs.calls.push_back("replay " + std::to_string(index));
      work();
    }
    FakeGraphs& graphs;
    std::size_t index;
    std::function<void()> work;
  };

  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    calls.push_back("capture " + std::to_string(captured));
    work();
    return std::make_unique<One>(*this, captured++, work);
  }

  std::size_t captured = 0;
  std::vector<std::string> calls;  ///< in their order; graphs are numbered as they were captured
};

}  // namespace penstock::train
