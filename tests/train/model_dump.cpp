// model_dump SIZE FILE: a seeded model, a batch and what the model makes of it, for a re-implementation to
// compare with. The file is a dictionary of tensors (torch.load reads it); the model's description goes to
// stdout.
#include <cstdio>
#include <exception>
#include <fstream>

#include "tests/train/random_batch.h"
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

  c10::Dict<std::string, torch::Tensor> all;
  for (const auto& each : model->named_parameters()) all.insert("model." + each.key(), each.value().detach());
  for (const auto& each : model->named_buffers()) all.insert("model." + each.key(), each.value());
  all.insert("tokens", batch.tokens);
  all.insert("token_lengths", batch.token_lengths);
  all.insert("mel", batch.mel);
  all.insert("mel_lengths", batch.mel_lengths);
  all.insert("out.mel", out.mel);
  all.insert("out.post", out.post);
  all.insert("out.stop", out.stop);
  for (std::size_t i = 0; i < out.alignments.size(); ++i) {
    all.insert("out.alignment" + std::to_string(i), out.alignments[i]);
  }
  for (const Loss& loss : model->forward(batch)) all.insert("loss." + loss.name, loss.sum);
  const std::vector<char> bytes = torch::pickle_save(all);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::puts(model->description().c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return std::fputs("model_dump SIZE FILE\n", stderr), 2;
  dump(argv[1], argv[2]);
} catch (const std::exception& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
