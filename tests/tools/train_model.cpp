// train_model SIZE FILE: a seeded model, a batch and what the model makes of it, for a re-implementation to
// compare with. The file is a safetensors one; its metadata has the model's description.
#include <cstdio>
#include <exception>

#include "tests/train/random_batch.h"
#include "train/safetensors.h"
#include "train/tts.h"

namespace {

using namespace penstock::train;

void dump(const char* size, const char* path) {
  torch::manual_seed(5);
  const auto model = make_tts({.n_symbols = 40, .sizes = sizes_named(size)});
  model->eval();
  torch::NoGradGuard no_grad;
  // Biases and scales start as constants, which would hide a difference.
  for (const auto& p : model->parameters()) p.add_(torch::randn_like(p), 0.02);
  const ModelBatch batch = random_batch({31, 12, 0, 4}, {200, 131, 0, 7}, 32, 200, 80, 40);
  const auto out = model->outputs(batch);

  NamedTensors all;
  for (const auto& each : model->named_parameters()) all.emplace_back("model." + each.key(), each.value());
  for (const auto& each : model->named_buffers()) all.emplace_back("model." + each.key(), each.value());
  all.insert(all.end(), {{"tokens", batch.tokens},
                         {"token_lengths", batch.token_lengths},
                         {"mel", batch.mel},
                         {"mel_lengths", batch.mel_lengths},
                         {"out.mel", out.mel},
                         {"out.post", out.post},
                         {"out.stop", out.stop}});
  for (std::size_t i = 0; i < out.alignments.size(); ++i) {
    all.emplace_back("out.alignment" + std::to_string(i), out.alignments[i]);
  }
  for (const Loss& loss : model->forward(batch)) all.emplace_back("loss." + loss.name, loss.sum);
  save_safetensors(path, all, {{"description", model->description()}});
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return std::fputs("train_model SIZE FILE\n", stderr), 2;
  dump(argv[1], argv[2]);
} catch (const std::exception& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
