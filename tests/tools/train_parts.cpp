// train_parts copy IN OUT: a safetensors file, loaded and saved. train_parts adamw IN OUT CLIP EMA BETA1
// BETA2 EPS DECAY: IN holds the weights "w.<name>", gradients "<update>.<name>" and "rates"; OUT gets
// "w.<name>", the optimizer's state and "norms". train_parts schedule KIND PEAK WARM_UP TOTAL FLOOR N: rates
// of the first N.
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "train/safetensors.h"

namespace {

using namespace penstock;
using namespace penstock::train;

void copy(const std::string& from, const std::string& to) {
  const SafeTensors file = load_safetensors(from);
  save_safetensors(to, file.tensors, file.metadata);
}

void adamw(const std::string& from, const std::string& to, const std::vector<double>& n) {
  const NamedTensors file = load_safetensors(from).tensors;
  const auto find = [&](const std::string& name) {
    for (const auto& [present, tensor] : file)
      if (present == name) return tensor;
    throw Error(fmt::format("{}: {} is missing", from, name));
  };
  NamedTensors parameters;
  for (const auto& [name, tensor] : file)
    if (name.starts_with("w.")) parameters.emplace_back(name.substr(2), tensor.clone().requires_grad_());
  Optimizer optimizer(parameters, {n.at(2), n.at(3), n.at(4), n.at(5)}, n.at(1));
  const torch::Tensor rates = find("rates");
  std::vector<torch::Tensor> norms;
  for (std::int64_t update = 0; update < rates.numel(); ++update) {
    for (auto& [name, p] : parameters) p.mutable_grad().add_(find(fmt::format("{}.{}", update, name)));
    norms.push_back(optimizer.update(rates[update], n.at(0), torch::zeros({})));
    optimizer.zero_gradients();
  }
  NamedTensors result = optimizer.state();
  for (const auto& [name, p] : parameters) result.emplace_back("w." + name, p.detach());
  result.emplace_back("norms", torch::stack(norms));
  save_safetensors(to, result);
}

void schedule(const std::string& kind, const std::vector<double>& n) {
  using Kind = Schedule::Kind;
  const Schedule s{kind == "noam"     ? Kind::noam
                   : kind == "cosine" ? Kind::cosine
                                      : Kind::constant,
                   n.at(0), static_cast<std::int64_t>(n.at(1)), static_cast<std::int64_t>(n.at(2)), n.at(3)};
  for (int update = 0; update < n.at(4); ++update) fmt::print("{}\n", s.at(update));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string command = words.empty() ? "" : words[0];
  const auto numbers = [&](std::size_t first) {
    std::vector<double> result;
    for (std::size_t i = first; i < words.size(); ++i) result.push_back(std::stod(words[i]));
    return result;
  };
  if (command == "copy" && words.size() == 3)
    copy(words[1], words[2]);
  else if (command == "adamw" && words.size() == 9)
    adamw(words[1], words[2], numbers(3));
  else if (command == "schedule" && words.size() == 7)
    schedule(words[1], numbers(2));
  else
    throw Error("train_parts: see the head of its source");
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
