#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <ATen/autocast_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "penstock/core/error.h"
#include "train/bf16.h"

namespace penstock::train {
namespace {

/// What belongs to one shape.
struct Plan {
  ModelBatch input;              ///< what the graph reads
  std::unique_ptr<Graph> graph;  ///< none: forward and backward run eagerly, on a batch where it lies
};

/// What a loss is, without its value: the same in every batch.
struct Term {
  std::string name;
  Per per = Per::frame;
  double weight = 1;
  bool operator==(const Term&) const = default;
};

/// Numbers of an update on their way to the host.
struct Pending {
  std::int64_t update = 0;
  torch::Tensor numbers;          ///< on the host: loss, the mean of each term, norm
  std::vector<c10::Event> marks;  ///< where its pieces of work begin and end on the device; none on the CPU
};

/// bfloat16 for the forward pass. Without the cache of cast weights, which would outlive an update inside a
/// captured graph.
class Autocast {
 public:
  Autocast(torch::DeviceType device, bool on)
      : device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        cache_(at::autocast::is_autocast_cache_enabled()),
        type_(at::autocast::get_autocast_dtype(device)) {
    set(on, on ? torch::kBFloat16 : type_, false);
  }
  ~Autocast() { set(enabled_, type_, cache_); }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  void set(bool enabled, torch::ScalarType type, bool cache) const {
    at::autocast::set_autocast_enabled(device_, enabled);
    at::autocast::set_autocast_dtype(device_, type);
    at::autocast::set_autocast_cache_enabled(cache);
  }
  torch::DeviceType device_;
  bool enabled_, cache_;
  torch::ScalarType type_;
};

/// Without dropout, until it goes.
class Evaluating {
 public:
  explicit Evaluating(Model& model) : model_(model), training_(model.is_training()) { model_.eval(); }
  ~Evaluating() { model_.train(training_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  Model& model_;
  bool training_;
};

std::string text(const Shape& s) { return fmt::format("({}, {}, {})", s.rows, s.tokens, s.frames); }

c10::Stream stream_of(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Rows of length 0, in memory that stays.
ModelBatch empty_input(const Shape& shape, std::int32_t bins, torch::Device device) {
  const auto ints = torch::dtype(torch::kInt32).device(device), floats = ints.dtype(torch::kFloat32);
  return {.shape = shape,
          .tokens = torch::zeros({shape.rows, shape.tokens}, ints),
          .token_lengths = torch::zeros({shape.rows}, ints),
          .mel = torch::zeros({shape.rows, shape.frames, bins}, floats),
          .mel_lengths = torch::zeros({shape.rows}, ints),
          .speakers = torch::full({shape.rows}, -1, ints)};
}

/// A batch where it lies. The tensors show its memory and do not own it.
ModelBatch view(const Batch& batch, torch::Device device) {
  const auto tensor = [&]<typename T>(std::span<const T> data, std::vector<std::int64_t> sizes,
                                      const char* name) {
    const std::int64_t size = c10::multiply_integers(sizes);
    if (static_cast<std::int64_t>(data.size()) != size)
      throw Error(fmt::format("step: {} of a batch of shape {} must have {} elements, but has {}", name,
                              text(batch.shape), size, data.size()));
    const auto type = c10::CppTypeToScalarType<T>::value;
    return torch::from_blob(const_cast<T*>(data.data()), sizes, torch::dtype(type).device(device));
  };
  const Shape& s = batch.shape;
  return {.shape = s,
          .tokens = tensor(batch.tokens, {s.rows, s.tokens}, "tokens"),
          .token_lengths = tensor(batch.token_lengths, {s.rows}, "token_lengths"),
          .mel = tensor(batch.mel, {s.rows, s.frames, batch.bins}, "mel"),
          .mel_lengths = tensor(batch.mel_lengths, {s.rows}, "mel_lengths"),
          .speakers = tensor(batch.speakers, {s.rows}, "speakers")};
}

/// A batch where it lies, for work that is put on the device from here on.
ModelBatch arrived(const DeviceBatch& batch, torch::Device device) {
  if (device.is_cpu())
    batch.wait();
  else
    batch.use_on(stream_of(device).native_handle());
  return view(batch.device(), device);
}

void copy(const ModelBatch& from, ModelBatch& to) {
  const torch::NoGradGuard no_grad;
  for (const auto part : {&ModelBatch::tokens, &ModelBatch::token_lengths, &ModelBatch::mel,
                          &ModelBatch::mel_lengths, &ModelBatch::speakers})
    (to.*part).copy_(from.*part, true);
}

NamedTensors trained_parameters(const Model& model) {
  NamedTensors result;
  std::set<const void*> seen;  // a tensor that two modules share has two names
  for (const auto& p : model.named_parameters())
    if (p.value().requires_grad() && seen.insert(p.value().unsafeGetTensorImpl()).second)
      result.emplace_back(p.key(), p.value());
  return result;
}

std::shared_ptr<Model> placed(std::shared_ptr<Model> model, torch::Device device) {
  model->to(device);
  model->train();
  return model;
}

}  // namespace

struct Step::State {
  State(std::shared_ptr<Model> of, const StepOptions& o)
      : options(o),
        model(placed(std::move(of), o.device)),
        optimizer(trained_parameters(*model), o.optimizer, o.ema_decay),
        inverse(torch::ones({3}, torch::device(o.device))),
        learning_rate(torch::zeros({}, torch::device(o.device))) {}

  StepOptions options;
  std::shared_ptr<Model> model;
  Optimizer optimizer;
  bool warm = false;
  std::size_t warmed_up = 0;  ///< shapes
  std::int64_t retraces = 0, updates = 0, batches = 0;
  std::vector<Term> terms;        ///< of the first forward pass
  torch::Tensor inverse;          ///< [3] 1 / count of the window, in the order of Per
  torch::Tensor learning_rate;    ///< []
  torch::Tensor window;           ///< [1 + terms] loss and means, added up over the window's batches
  torch::Tensor numbers;          ///< [2 + terms] what the last window came to, and its norm
  std::vector<c10::Event> marks;  ///< of the window so far, as in Pending
  std::deque<Pending> pending;
  std::map<Shape, Plan> plans;
  std::unique_ptr<Graph> update_graph;

  std::vector<Loss> forward(const ModelBatch& input);
  void forward_backward(const ModelBatch& input);
  void finish_window();
  void expect(const Counts& counts);
  std::unique_ptr<Graph> run_or_capture(const std::function<void()>& work);
  void timed(const std::function<void()>& work);
};

std::vector<Loss> Step::State::forward(const ModelBatch& input) {
  std::vector<Loss> losses;
  {
    const Autocast autocast(options.device.type(), options.precision == Precision::bf16);
    losses = model->forward(input);
  }
  std::vector<Term> these;
  for (const Loss& loss : losses) {
    if (loss.sum.dim() != 0 || loss.sum.scalar_type() != torch::kFloat32)
      throw Error(fmt::format("step: loss {} must be one float32, but is {} [{}]", loss.name,
                              c10::toString(loss.sum.scalar_type()),
                              fmt::join(loss.sum.sizes().vec(), ", ")));
    these.push_back({loss.name, loss.per, loss.weight});
  }
  if (these.empty()) throw Error("step: the model must have a loss, but returned none");
  if (terms.empty()) {
    terms = these;
    window = torch::zeros({static_cast<std::int64_t>(1 + terms.size())}, torch::device(options.device));
    numbers = torch::zeros({static_cast<std::int64_t>(2 + terms.size())}, window.options());
  }
  if (these != terms) throw Error("step: a model's losses must be the same in every batch, but are not");
  return losses;
}

void Step::State::expect(const Counts& counts) {
  const torch::NoGradGuard no_grad;
  // A window without valid elements has sums of 0. Filled one by one: a copy from the host would wait.
  for (std::size_t i = 0; i < counts.size(); ++i)
    inverse.select(0, static_cast<std::int64_t>(i)).fill_(counts[i] > 0 ? 1 / counts[i] : 1);
}

void Step::State::forward_backward(const ModelBatch& input) {
  torch::Tensor total;
  std::vector<torch::Tensor> values(1);
  for (const Loss& loss : forward(input)) {
    const torch::Tensor mean = loss.sum * inverse.select(0, static_cast<std::int64_t>(loss.per));
    total = total.defined() ? total + mean * loss.weight : mean * loss.weight;
    values.push_back(mean.detach());
  }
  total.backward();
  values.front() = total.detach();
  const torch::NoGradGuard no_grad;
  window.add_(torch::stack(values));
}

void Step::State::finish_window() {
  const torch::NoGradGuard no_grad;
  const torch::Tensor bad = at::isfinite(window[0]).logical_not().to(torch::kFloat32);
  const torch::Tensor norm = optimizer.update(learning_rate, options.clip_norm, bad);
  optimizer.zero_gradients();
  at::cat_out(numbers, {window, norm.view(1)});
  window.zero_();
}

/// Runs it once in either case.
std::unique_ptr<Graph> Step::State::run_or_capture(const std::function<void()>& work) {
  if (options.graphs) return options.graphs->capture(work);
  work();
  return nullptr;
}

/// Marks its begin and end on the device.
void Step::State::timed(const std::function<void()>& work) {
  if (options.device.is_cpu()) return work();
  const auto mark = [this] {
    c10::Event event(options.device.type(), c10::EventFlag::BACKEND_DEFAULT);  // that keeps the time
    event.record(stream_of(options.device));
    return event;
  };
  c10::Event begin = mark();
  work();
  marks.push_back(std::move(begin));
  marks.push_back(mark());
}

Step::Step(std::shared_ptr<Model> model, const StepOptions& options) {
  if (options.precision == Precision::bf16) prepare_bf16();
  state_ = std::make_unique<State>(std::move(model), options);
}

Step::~Step() = default;

void Step::warm_up(std::span<const Shape> shapes, std::int32_t bins) {
  State& s = *state_;
  if (s.batches != 0)
    throw Error("step: warm_up must come before a window's first batch, but came inside one");
  const torch::Device device = s.options.device;
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(torch::Device(torch::kCPU))};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  std::vector<torch::Tensor> random, buffers;
  for (const at::Generator& g : generators) random.push_back(g.get_state());
  for (const torch::Tensor& b : s.model->buffers()) buffers.push_back(b.detach().clone());

  std::vector<Shape> sorted(shapes.begin(), shapes.end());
  std::ranges::sort(sorted, std::greater(), [](const Shape& shape) {
    const std::int64_t rows = shape.rows;
    return std::pair(rows * shape.frames, rows * shape.tokens);
  });
  s.expect({});
  for (const Shape& shape : sorted) {
    Plan& plan = s.plans[shape];
    plan.input = empty_input(shape, bins, device);
    plan.graph = s.run_or_capture([&s, &plan] { s.forward_backward(plan.input); });
    if (!plan.graph) plan.input = {};
  }
  if (!sorted.empty()) {
    // What is not finite changes nothing: the whole update runs, without a trace.
    const torch::NoGradGuard no_grad;
    s.window.fill_(std::numeric_limits<float>::quiet_NaN());
    s.update_graph = s.run_or_capture([&s] { s.finish_window(); });
  }

  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> present = s.model->buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) torch::Tensor(present[i]).copy_(buffers[i]);
  for (std::size_t i = 0; i < generators.size(); ++i) generators[i].set_state(random[i]);
  s.warm = true;
  s.warmed_up = s.plans.size();
}

std::optional<Retrace> Step::add(const DeviceBatch& batch, const Counts& window) {
  State& s = *state_;
  const Batch& host = batch.host();
  std::optional<Retrace> retrace;
  if (s.warm && !s.plans.contains(host.shape)) {
    ++s.retraces;
    retrace = Retrace{
        .shape = host.shape,
        .epoch = host.epoch,
        .step = host.step,
        .utterances = {host.utterances.begin(), host.utterances.end()},
        .cause = fmt::format("shape {} is none of the {} that were planned", text(host.shape), s.warmed_up)};
  }
  const ModelBatch input = arrived(batch, s.options.device);
  Plan& plan = s.plans[host.shape];
  s.timed([&] {
    s.expect(window);
    if (!plan.graph) return s.forward_backward(input);
    copy(input, plan.input);
    plan.graph->replay();
  });
  ++s.batches;
  return retrace;
}

void Step::update(double learning_rate) {
  State& s = *state_;
  if (s.batches == 0) throw Error("step: an update needs a batch, but there was none since the last one");
  s.batches = 0;
  Pending next{.update = s.updates++};
  s.timed([&] {
    const torch::NoGradGuard no_grad;
    s.learning_rate.fill_(learning_rate);
    if (s.update_graph)
      s.update_graph->replay();
    else
      s.finish_window();
    const bool elsewhere = !s.options.device.is_cpu();
    next.numbers = torch::empty(s.numbers.sizes(), torch::dtype(torch::kFloat32).pinned_memory(elsewhere));
    next.numbers.copy_(s.numbers, true);
  });
  next.marks = std::exchange(s.marks, {});
  s.pending.push_back(std::move(next));
}

std::vector<Figures> Step::figures(bool wait) {
  State& s = *state_;
  std::vector<Figures> result;
  for (; !s.pending.empty(); s.pending.pop_front()) {
    const Pending& first = s.pending.front();
    if (!first.marks.empty()) {
      if (wait) first.marks.back().synchronize();
      if (!first.marks.back().query()) break;
    }
    const std::span numbers(first.numbers.const_data_ptr<float>(), 2 + s.terms.size());
    Figures f{.update = first.update, .loss = numbers.front(), .grad_norm = numbers.back()};
    for (std::size_t i = 0; i < s.terms.size(); ++i) f.losses.emplace_back(s.terms[i].name, numbers[1 + i]);
    f.skipped = !std::isfinite(f.loss) || !std::isfinite(f.grad_norm);
    for (std::size_t i = 0; i < first.marks.size(); i += 2)
      f.device_ms = f.device_ms.value_or(0) + first.marks[i].elapsedTime(first.marks[i + 1]);
    result.push_back(std::move(f));
  }
  return result;
}

std::vector<std::pair<std::string, double>> Step::evaluate(const DeviceBatch& batch) {
  State& s = *state_;
  const torch::NoGradGuard no_grad;
  const Evaluating evaluating(*s.model);
  std::vector<std::pair<std::string, double>> sums;
  for (const Loss& loss : s.forward(arrived(batch, s.options.device)))
    sums.emplace_back(loss.name, loss.sum.item<float>());
  return sums;
}

double Step::weighted_mean(const std::vector<std::pair<std::string, double>>& sums,
                           const Counts& counts) const {
  double result = 0;
  for (const auto& [name, sum] : sums) {
    const auto term = std::ranges::find(state_->terms, name, &Term::name);
    if (term == state_->terms.end()) throw Error(fmt::format("step: the model has no loss {}", name));
    const double count = counts[static_cast<std::size_t>(term->per)];
    result += term->weight * sum / (count > 0 ? count : 1);
  }
  return result;
}

std::int64_t Step::retraces() const { return state_->retraces; }
std::int64_t Step::planned() const { return static_cast<std::int64_t>(state_->plans.size()); }
Model& Step::model() const { return *state_->model; }
Optimizer& Step::optimizer() const { return state_->optimizer; }

}  // namespace penstock::train
