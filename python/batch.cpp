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

/// An array in an accelerator's memory: leaves by DLPack.
class DeviceArray {
 public:
  DeviceArray(nb::object batch, const Field& f) : batch_(std::move(batch)), field_(f) {}

  [[nodiscard]] nb::tuple shape() const {
    nb::list sizes;
    for (std::size_t i = 0; i < field_.dimensions; ++i) sizes.append(field_.shape[i]);
    return nb::tuple(sizes);
  }
  [[nodiscard]] std::tuple<int, int> device() const { return {nb::device::cuda::value, view().device_id()}; }
  /// Streams as the array API numbers them for CUDA: 1 (or None) is the legacy default stream, 2 the thread's
  /// own, -1 asks for no ordering at all.
  [[nodiscard]] nb::object dlpack(std::optional<std::intptr_t> stream, const nb::kwargs& /*rest*/) const {
    const std::intptr_t number = stream.value_or(1);
    if (number == 0)
      throw Error("stream 0 is ambiguous in DLPack: 1 is the legacy default stream, 2 the thread's own");
    if (number != -1) view().batch().use_on(number == 1 ? nullptr : reinterpret_cast<StreamHandle>(number));
    const nb::ndarray<> array(const_cast<void*>(field_.data), field_.dimensions, field_.shape.data(), batch_,
                              nullptr, field_.type, nb::device::cuda::value, view().device_id());
    return nb::cast(array);  // a DLPack capsule
  }

 private:
  [[nodiscard]] const BatchView& view() const { return nb::cast<const BatchView&>(batch_); }
  nb::object batch_;
  Field field_;
};

/// NumPy for what is in ordinary memory; `self` stays alive with it.
nb::object show(nb::handle self, const Field& f, bool on_host) {
  if (!on_host) return nb::cast(DeviceArray(nb::borrow(self), f));
  return nb::cast(
      nb::ndarray<nb::numpy>(const_cast<void*>(f.data), f.dimensions, f.shape.data(), self, nullptr, f.type));
}

template <Field (*Get)(const Batch&, bool)>
nb::object array(nb::handle self) {
  const auto& view = nb::cast<const BatchView&>(self);
  return show(self, Get(view.batch().device(), view.bins_first()), view.on_host());
}

nb::dict extras(nb::handle self) {
  const auto& view = nb::cast<const BatchView&>(self);
  const Batch& b = view.batch().device();
  nb::dict all;
  for (const ExtraArray& e : b.extras)
    all[nb::str(e.name.data(), e.name.size())] = show(self, extra(e, b.shape), view.on_host());
  return all;
}

}  // namespace

void bind_batch(nb::module_& m) {
  nb::class_<DeviceArray>(m, "DeviceArray")
      .def_prop_ro("shape", &DeviceArray::shape)
      .def("__dlpack_device__", &DeviceArray::device)
      .def("__dlpack__", &DeviceArray::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("rest"));
  nb::class_<BatchView>(m, "Batch")
      .def_prop_ro("tokens", &array<tokens>)
      .def_prop_ro("token_lengths", &array<token_lengths>)
      .def_prop_ro("mel", &array<mel>)
      .def_prop_ro("mel_lengths", &array<mel_lengths>)
      .def_prop_ro("speakers", &array<speakers>)
      .def_prop_ro("utterances", &array<utterances>)
      .def_prop_ro("replaced", &array<replaced>)
      .def_prop_ro("extras", &extras)
      .def_prop_ro("ids", &BatchView::ids)
      .def_prop_ro("epoch", [](const BatchView& b) { return b.batch().host().epoch; })
      .def_prop_ro("step", [](const BatchView& b) { return b.batch().host().step; })
      .def_prop_ro("shape", [](const BatchView& b) {
        const Shape& s = b.batch().host().shape;
        return std::tuple(s.rows, s.tokens, s.frames);
      });
}

}  // namespace penstock::python
