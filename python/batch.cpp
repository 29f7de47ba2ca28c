#include "python/batch.h"

#include <array>
#include <optional>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace penstock::python {
namespace {

/// One of a batch's arrays.
struct Field {
  const void* data = nullptr;
  nb::dlpack::dtype type = nb::dtype<float>();
  std::size_t dimensions = 1;
  std::array<std::size_t, 3> shape{};
};

template <typename Type = void, typename T>
Field field(std::span<const T> values, std::initializer_list<std::int32_t> shape) {
  Field f{.data = values.data(),
          .type = nb::dtype<std::conditional_t<std::is_void_v<Type>, T, Type>>(),
          .dimensions = shape.size()};
  std::copy(shape.begin(), shape.end(), f.shape.begin());
  return f;
}

Field tokens(const Batch& b, bool) { return field(b.tokens, {b.shape.rows, b.shape.tokens}); }
Field token_lengths(const Batch& b, bool) { return field(b.token_lengths, {b.shape.rows}); }
Field mel_lengths(const Batch& b, bool) { return field(b.mel_lengths, {b.shape.rows}); }
Field speakers(const Batch& b, bool) { return field(b.speakers, {b.shape.rows}); }
Field utterances(const Batch& b, bool) { return field(b.utterances, {b.shape.rows}); }
Field replaced(const Batch& b, bool) { return field<bool>(b.replaced, {b.shape.rows}); }
Field mel(const Batch& b, bool bins_first) {
  const auto [rows, text, frames] = b.shape;
  return bins_first ? field(b.mel, {rows, b.bins, frames}) : field(b.mel, {rows, frames, b.bins});
}

/// [rows, length, width]; a width of 1 is not a dimension.
Field extra(const ExtraArray& e, const Shape& shape) {
  Field f{.data = e.data.data(),
          .type = e.type == ElementType::int32 ? nb::dtype<std::int32_t>() : nb::dtype<float>()};
  f.shape[0] = static_cast<std::size_t>(shape.rows);
  if (e.along != Along::nothing)
    f.shape[f.dimensions++] =
        static_cast<std::size_t>(e.along == Along::frames ? shape.frames : shape.tokens);
  if (e.width != 1) f.shape[f.dimensions++] = static_cast<std::size_t>(e.width);
  return f;
}

using DlpackDevice = std::tuple<int, int>;

/// An array in an accelerator's memory: leaves by DLPack.
class DeviceArray {
 public:
  DeviceArray(nb::object batch, const Field& f) : batch_(std::move(batch)), field_(f) {}

  [[nodiscard]] nb::tuple shape() const {
    nb::list sizes;
    for (std::size_t i = 0; i < field_.dimensions; ++i) sizes.append(field_.shape[i]);
    return nb::tuple(sizes);
  }
  [[nodiscard]] std::string type() const {
    if (field_.type == nb::dtype<bool>()) return "bool";
    return (field_.type == nb::dtype<float>() ? "float" : "int") + std::to_string(field_.type.bits);
  }
  [[nodiscard]] DlpackDevice device() const { return {nb::device::cuda::value, view().device_id()}; }
  [[nodiscard]] nb::object dlpack(std::optional<std::intptr_t> stream, const nb::object& max_version,
                                  std::optional<DlpackDevice> wanted, std::optional<bool> copy) const;

 private:
  [[nodiscard]] const BatchView& view() const { return nb::cast<const BatchView&>(batch_); }
  nb::object batch_;
  Field field_;
};

/// Streams as the array API numbers them for CUDA: 1 (or None) is the legacy default stream, 2 the thread's
/// own, -1 asks for no ordering at all.
nb::object DeviceArray::dlpack(std::optional<std::intptr_t> stream, const nb::object& max_version,
                               std::optional<DlpackDevice> wanted, std::optional<bool> copy) const {
  if (wanted && *wanted != device())
    throw nb::buffer_error("this array stays on its device: copy it there with the framework's own means");
  if (copy.value_or(false))
    throw nb::buffer_error("this array is handed over as it is: copy it with the framework's own means");
  const std::intptr_t number = stream.value_or(1);
  if (number == 0)
    throw Error("stream 0 is ambiguous in DLPack: 1 is the legacy default stream, 2 the thread's own");
  const DeviceBatch& batch = view().live();
  if (number == -1) {
    // Nobody orders anything behind the copy, so it must be over.
    const WithoutGil released;
    batch.wait();
  } else {
    batch.use_on(number == 1 ? nullptr : reinterpret_cast<StreamHandle>(number));
  }
  const nb::ndarray<nb::array_api> array(const_cast<void*>(field_.data), field_.dimensions,
                                         field_.shape.data(), batch_, nullptr, field_.type,
                                         nb::device::cuda::value, view().device_id());
  return nb::cast(array).attr("__dlpack__")(nb::arg("max_version") = max_version);
}

/// As an array of a framework; `self` stays alive with it.
template <typename... Kind>
nb::object array_of(nb::handle self, const Field& f) {
  return nb::cast(
      nb::ndarray<Kind...>(const_cast<void*>(f.data), f.dimensions, f.shape.data(), self, nullptr, f.type));
}

/// NumPy for what is in ordinary memory.
nb::object show(nb::handle self, const Field& f, const BatchView& view) {
  if (!view.on_host()) return nb::cast(DeviceArray(nb::borrow(self), f));
  return view.writable() ? array_of<nb::numpy>(self, f) : array_of<nb::numpy, nb::ro>(self, f);
}

template <Field (*Get)(const Batch&, bool)>
nb::object array(nb::handle self) {
  const auto& view = nb::cast<const BatchView&>(self);
  return show(self, Get(view.batch().device(), view.bins_first()), view);
}

/// As a DLPack capsule, for a framework whose arrays may be written to.
const Batch& to_lend(const BatchView& view) {
  if (!view.on_host()) throw Error("this batch is on a device: its arrays leave by their own __dlpack__");
  return view.batch().host();
}

template <Field (*Get)(const Batch&, bool)>
nb::object lend(nb::handle self) {
  const auto& view = nb::cast<const BatchView&>(self);
  return array_of<>(self, Get(to_lend(view), view.bins_first()));
}

nb::dict lend_extras(nb::handle self) {
  const Batch& b = to_lend(nb::cast<const BatchView&>(self));
  nb::dict all;
  for (const ExtraArray& e : b.extras)
    all[nb::str(e.name.data(), e.name.size())] = array_of<>(self, extra(e, b.shape));
  return all;
}

nb::dict extras(nb::handle self) {
  const auto& view = nb::cast<const BatchView&>(self);
  const Batch& b = view.batch().device();
  nb::dict all;
  for (const ExtraArray& e : b.extras)
    all[nb::str(e.name.data(), e.name.size())] = show(self, extra(e, b.shape), view);
  return all;
}

nb::list ids(const BatchView& view) {
  nb::list all;
  for (const std::string& id : view.ids()) all.append(text(id));
  return all;
}

void wait(const BatchView& view) {
  if (view.on_host()) return;
  const DeviceBatch& batch = view.live();
  const WithoutGil released;
  batch.wait();
}

}  // namespace

void BatchView::watch(nb::object counter) {
  versions_.push_back(nb::cast<std::int64_t>(counter.attr("_version")));
  watched_.push_back(std::move(counter));
}

bool BatchView::may_be_written() const {
  if (writable_ || watched_.empty()) return writable_;
  try {
    const nb::error_scope whatever_ends_the_batch;
    for (std::size_t i = 0; i < versions_.size(); ++i)
      if (nb::cast<std::int64_t>(watched_[i].attr("_version")) != versions_[i]) return true;
  } catch (const std::exception&) {
    return true;
  }
  return false;
}

/// The last holder of an accelerator's buffers waits for the work that still uses them.
BatchView::~BatchView() {
  if (on_host()) {
    if (may_be_written()) *batch().host().written = true;
    return;
  }
  const WithoutGil released;
  batch_.drop();
}

// Arrays are NumPy's unless the batch is on a device: `| Any` gives both the right types, without a question
// about each.
#define PENSTOCK_ARRAY(name, type, help)                                                                 \
  def_prop_ro(#name, &array<name>,                                                                       \
              nb::sig("def " #name "(self) -> numpy.typing.NDArray[numpy." type "] | typing.Any"), help) \
      .def("lend_" #name, &lend<name>, nb::sig("def lend_" #name "(self) -> typing.Any"),                \
           "A DLPack capsule of " #name ". Whoever writes through it calls writable(), or watch().")

void bind_batch(nb::module_& m) {
  nb::class_<DeviceArray>(
      m, "DeviceArray", "An array in an accelerator's memory. It leaves by DLPack: torch.from_dlpack(array).")
      .def_prop_ro("shape", &DeviceArray::shape, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("dtype", &DeviceArray::type, "float32, int32, int64 or bool")
      .def("__dlpack_device__", &DeviceArray::device)
      .def("__dlpack__", &DeviceArray::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = "
                   "None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> "
                   "typing.Any"),
           "Work on `stream` from here on sees the array, and has it until that work is done. Never waits, "
           "unless the stream is -1.");
  nb::class_<BatchView>(
      m, "Batch",
      "A full batch. Its arrays are views of the feed's memory, good for as long as they live, and read-only "
      "unless writable() was called; with a device they are DeviceArrays. Rows of length 0 are padding.")
      .PENSTOCK_ARRAY(tokens, "int32", "[rows, tokens], 0 behind each text")
      .PENSTOCK_ARRAY(token_lengths, "int32", "[rows]")
      .PENSTOCK_ARRAY(mel, "float32", "[rows, frames, bins], or [rows, bins, frames] (mel_layout)")
      .PENSTOCK_ARRAY(mel_lengths, "int32", "[rows]")
      .PENSTOCK_ARRAY(speakers, "int32", "[rows] numbers of Feed.speakers; -1 in a row of length 0")
      .PENSTOCK_ARRAY(utterances, "int64", "[rows] numbers in the dataset; -1 in a row of length 0")
      .PENSTOCK_ARRAY(replaced, "bool_", "[rows] where a bad sample's place was filled by rule")
      .def_prop_ro("extras", &extras,
                   nb::sig("def extras(self) -> dict[str, numpy.typing.NDArray[typing.Any] | typing.Any]"),
                   "Arrays beside the mel by name: [rows, frames or tokens, width], without what is 1.")
      .def_prop_ro("ids", &ids, nb::sig("def ids(self) -> list[str]"), "[rows]; empty in a row of length 0")
      .def_prop_ro(
          "epoch", [](const BatchView& b) { return b.batch().host().epoch; }, "from 0 on")
      .def_prop_ro(
          "step", [](const BatchView& b) { return b.batch().host().step; }, "in its epoch, from 0 on")
      .def_prop_ro(
          "shape",
          [](const BatchView& b) {
            const Shape& s = b.batch().host().shape;
            return std::tuple(s.rows, s.tokens, s.frames);
          },
          "(rows, tokens, frames): one of Feed.shapes")
      .def(
          "writable",
          [](nb::handle self) {
            nb::cast<BatchView&>(self).allow_writing();
            return nb::borrow(self);
          },
          nb::sig("def writable(self) -> Batch"),
          "This batch: arrays that are taken from it from here on may be written to.")
      .def("watch", &BatchView::watch, nb::arg("counter"),
           nb::sig("def watch(self, counter: typing.Any) -> None"),
           "An object whose `_version` changes when a lent array is written to, as torch's tensors count.")
      .def("lend_extras", &lend_extras, nb::sig("def lend_extras(self) -> dict[str, typing.Any]"),
           "The extras as DLPack capsules.")
      .def("wait", &wait, "Until it has arrived on its device; for hosts that want to know the time.");
}
#undef PENSTOCK_ARRAY

}  // namespace penstock::python
