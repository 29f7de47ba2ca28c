#include "penstock/monitor/stacks.h"

#include <fstream>

#include <gtest/gtest.h>

#include "penstock/core/error.h"
#include "tests/temp_folder.h"

namespace penstock {
namespace {

constexpr const char* packages = "/home/u/env/lib/python3.11/site-packages/";

StackFrame library(const std::string& file, const std::string& function) {
  return {.file = packages + file, .function = function, .line = 7};
}

StackFrame users(const std::string& function, const std::string& expression, const std::string& text) {
  return {
      .file = "/home/u/train.py", .function = function, .line = 9, .expression = expression, .text = text};
}

Doing doing(const std::vector<StackFrame>& frames) {
  std::vector<const StackFrame*> stack;
  for (const StackFrame& f : frames) stack.push_back(&f);
  return doing_of(stack);
}

const StackFrame loop = users("<module>", "step()", "step()");

TEST(StacksTest, WaitingForALoaderIsInput) {
  EXPECT_EQ(doing({{.file = "/usr/lib/python3.11/selectors.py", .function = "select"},
                   library("torch/utils/data/dataloader.py", "_next_data"),
                   loop}),
            Doing::input);
  EXPECT_EQ(doing({library("tensorflow/python/data/ops/iterator_ops.py", "_next_internal"),
                   library("tensorflow/python/data/ops/iterator_ops.py", "__next__"), loop}),
            Doing::input);
}

TEST(StacksTest, AModuleInsideADatasetIsInputAndNotTheStep) {
  EXPECT_EQ(doing({library("torch/nn/modules/module.py", "_call_impl"),
                   users("__getitem__", "self.mel(wave)", "return self.mel(wave)"),
                   library("torch/utils/data/_utils/fetch.py", "fetch"), loop}),
            Doing::input);
}

TEST(StacksTest, NumPyAndAudioLibrariesInTheLoopAreInput) {
  EXPECT_EQ(doing({library("numpy/fft/_pocketfft.py", "rfft"), loop}), Doing::input);
  EXPECT_EQ(doing({users("prepare", "np.abs(x)", "y = np.abs(x)"), loop}), Doing::input);
  EXPECT_EQ(doing({library("librosa/core/spectrum.py", "stft"), loop}), Doing::input);
  EXPECT_EQ(doing({users("load_clip", "bytes[i]", "x += bytes[i]"), loop}), Doing::input);
}

TEST(StacksTest, FetchingANumberIsASync) {
  EXPECT_EQ(doing({users("<module>", "loss.item()", "total += loss.item()")}), Doing::sync);
  EXPECT_EQ(
      doing({library("jax/_src/array.py", "_value"), users("<module>", "float(loss)", "print(float(loss))")}),
      Doing::sync);
  EXPECT_EQ(doing({library("tensorflow/python/ops/array_ops.py", "_slice_helper"),
                   users("<module>", "x[i]", "total += x[i].numpy()")}),
            Doing::sync)
      << "slicing on the way to a number";
}

TEST(StacksTest, AStepOnALineThatAlsoFetchesIsTheStep) {
  EXPECT_EQ(doing({library("torch/nn/modules/linear.py", "forward"),
                   users("<module>", "model(x)", "loss = criterion(model(x), y).item()")}),
            Doing::compute);
  EXPECT_EQ(doing({users("<module>", "jnp.asarray(x)", "mel = jnp.asarray(x)")}), Doing::compute)
      << "another function's name ends in np.asarray";
}

TEST(StacksTest, TracingIsCompilingAndRunningWhatWasCompiledIsNot) {
  EXPECT_EQ(doing({library("torch/fx/proxy.py", "create_node"),
                   library("torch/_dynamo/convert_frame.py", "_compile"),
                   library("torch/_dynamo/eval_frame.py", "compile_wrapper"), loop}),
            Doing::compile);
  EXPECT_EQ(doing({library("torch/nn/modules/linear.py", "forward"),
                   library("torch/_dynamo/eval_frame.py", "compile_wrapper"), loop}),
            Doing::compute);
  EXPECT_EQ(doing({library("jax/_src/compiler.py", "backend_compile_and_load"), loop}), Doing::compile);
  EXPECT_EQ(doing({library("tensorflow/python/framework/ops.py", "_create_c_op"),
                   library("tensorflow/python/framework/func_graph.py", "func_graph_from_py_func"), loop}),
            Doing::compile);
  EXPECT_EQ(doing({library("torch/_dynamo/convert_frame.py", "<module>"),
                   {.file = "<frozen importlib._bootstrap>", .function = "_call_with_frames_removed"},
                   loop}),
            Doing::start)
      << "it is only imported";
}

TEST(StacksTest, ForwardBackwardAndUpdateAreTheStep) {
  EXPECT_EQ(doing({library("torch/autograd/graph.py", "_engine_run_backward"), loop}), Doing::compute);
  EXPECT_EQ(doing({library("torch/optim/adam.py", "step"), loop}), Doing::compute);
  EXPECT_EQ(doing({library("tensorflow/python/eager/execute.py", "quick_execute"), loop}), Doing::compute);
  EXPECT_EQ(doing({users("<module>", "train_step(p, x)", "p, loss = train_step(p, x)")}), Doing::compute);
  EXPECT_EQ(doing({users("<module>", "i + 1", "i = i + 1")}), Doing::python);
}

TEST(StacksTest, AKilledProcessLeavesALogThatIsRead) {
  const TempFolder folder;
  std::ofstream(folder / "1.samples") << "P\t41\t100.5\tpython train.py\n"
                                         "F\t0\t/u/train.py\t<module>\t3\tstep()\tstep()\n"
                                         "F\t1\t/x/site-packages/torch/utils/data/a.py\tget\t5\t\t\n"
                                         "K\t0\t0\n"
                                         "K\t1\t1,0\n"
                                         "S\t101.0\t0.5\t0\n"
                                         "nonsense\n"
                                         "S\t102.0\t0.6\t1\t0,1\n"
                                         "S\t103.0\t0.7\t9\n"
                                         "S\t103.5\t0.";
  const StackLog log = read_stack_log(folder / "1.samples");
  EXPECT_EQ(log.process, 41);
  EXPECT_EQ(log.command, "python train.py");
  ASSERT_EQ(log.samples.size(), 2U);
  EXPECT_EQ(log.samples[0].doing, Doing::compute);
  EXPECT_EQ(log.samples[1].doing, Doing::input);
  EXPECT_TRUE(log.samples[1].input_beside);
  ASSERT_NE(log.users_frame(1), nullptr);
  EXPECT_EQ(log.users_frame(1)->line, 3);
  EXPECT_FALSE(log.is_worker());
  EXPECT_THROW(read_stack_log(folder / "2.samples"), Error);
}

TEST(StacksTest, ARecordingOfPySpysIsTheMainThreadInEvenSteps) {
  const TempFolder folder;
  const auto script = folder.path() / "train.py", file = folder.path() / "recording.json";
  std::ofstream(script) << "def load_clip():\n    return f.read()\n\nload_clip()\n";
  const std::string own = script.string();
  std::ofstream(file) << R"({"shared": {"frames": [
      {"name": "<module>", "file": ")"
                      << own << R"(", "line": 4, "col": null},
      {"name": "Clips.load_clip", "file": ")"
                      << own << R"(", "line": 2, "col": null},
      {"name": "Adam.step", "file": "/u/lib/python3.11/site-packages/torch/optim/adam.py", "line": null}]},
    "profiles": [
      {"name": "Thread 71 \"Thread-1\"", "samples": [[2], [2]]},
      {"name": "Thread 7 \"MainThread\"", "samples": [[0, 1], [0, 2], [0, 1], [0, 99]]}]})";
  const StackLog log = read_spy_recording(file, 7, 100, 102);
  ASSERT_EQ(log.samples.size(), 4U);
  EXPECT_EQ(log.samples[0].doing, Doing::input);
  EXPECT_EQ(log.samples[1].doing, Doing::compute);
  EXPECT_EQ(log.samples[2].stack, log.samples[0].stack);
  EXPECT_DOUBLE_EQ(log.samples[0].t, 100.25);
  EXPECT_DOUBLE_EQ(log.samples[3].t, 101.75);
  const StackFrame* frame = log.users_frame(log.samples[0].stack);
  ASSERT_NE(frame, nullptr);
  EXPECT_EQ(frame->function, "load_clip");
  EXPECT_EQ(frame->text, "return f.read()");
  EXPECT_EQ(log.stacks[log.samples[3].stack].size(), 1U);  // a frame that is not there is left out

  std::ofstream(file) << R"({"profiles": 3})";
  EXPECT_THROW(read_spy_recording(file, 7, 100, 102), Error);
  std::ofstream(file) << "{";
  EXPECT_THROW(read_spy_recording(file, 7, 100, 102), Error);
}

}  // namespace
}  // namespace penstock
