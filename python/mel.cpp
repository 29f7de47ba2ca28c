// The mel kernel alone.
#include "penstock/features/mel.h"

#include <memory>
#include <vector>

#include <nanobind/ndarray.h>

#include "python/module.h"

namespace penstock::python {
namespace {

using Audio = nb::ndarray<nb::ro>;

std::string its_type(nb::handle object) { return utf8(nb::inst_name(object)); }

/// One clip or [clips, samples] of float32 in ordinary memory.
Audio audio_of(nb::handle object) {
  Audio audio;
  if (!nb::try_cast(object, audio, false))
    throw nb::type_error(
        ("audio must be an array of float32 that can be read as it is (NumPy, torch, JAX, or "
         "anything with DLPack or a buffer), but is a " +
         its_type(object))
            .c_str());
  if (audio.device_type() != nb::device::cpu::value)
    throw nb::type_error("audio must be in ordinary memory, but is on a device");
  if (audio.dtype() != nb::dtype<float>())
    throw nb::type_error("audio must be float32 with samples from -1 to 1, but has another type: convert it");
  if (audio.ndim() != 1 && audio.ndim() != 2)
    throw nb::type_error(("audio must be [samples] or [clips, samples], but has " +
                          std::to_string(audio.ndim()) + " dimensions")
                             .c_str());
  return audio;
}

/// A planned kernel. Immutable, so any thread may call it.
class MelFunction {
 public:
  explicit MelFunction(const Settings& settings) : mel_(settings.config.mel) {}

  [[nodiscard]] nb::object compute(nb::handle object) const {
    const Audio audio = audio_of(object);
    const bool single = audio.ndim() == 1;
    const std::size_t clips = single ? 1 : audio.shape(0), samples = audio.shape(audio.ndim() - 1);
    const std::int64_t between = single ? 0 : audio.stride(0), step = audio.stride(audio.ndim() - 1);
    const MelOptions& options = mel_.options();
    const auto frames = static_cast<std::size_t>(options.frames(static_cast<std::int64_t>(samples)));
    const auto bins = static_cast<std::size_t>(options.n_mels);
    const bool bins_first = options.layout == MelLayout::bins_first;
    auto out = std::make_unique_for_overwrite<float[]>(clips * frames * bins);
    {
      const WithoutGil released;
      thread_local MelScratch scratch;
      std::vector<float> packed(step == 1 || samples < 2 ? 0 : samples);
      for (std::size_t c = 0; c < clips; ++c) {
        const float* clip = static_cast<const float*>(audio.data()) + static_cast<std::int64_t>(c) * between;
        for (std::size_t i = 0; i < packed.size(); ++i) packed[i] = clip[static_cast<std::int64_t>(i) * step];
        mel_.compute({packed.empty() ? clip : packed.data(), samples}, out.get() + c * frames * bins,
                     static_cast<std::ptrdiff_t>(bins_first ? frames : bins), scratch);
      }
    }
    const nb::capsule owner(out.get(), [](void* data) noexcept { delete[] static_cast<float*>(data); });
    const std::size_t shape[] = {clips, bins_first ? bins : frames, bins_first ? frames : bins};
    return nb::cast(
        nb::ndarray<nb::numpy, float>(out.release(), single ? 2 : 3, shape + (single ? 1 : 0), owner));
  }

 private:
  Mel mel_;
};

}  // namespace

void bind_mel(nb::module_& m) {
  nb::class_<MelFunction>(m, "Mel", "A planned mel transform.")
      .def(nb::init<const Settings&>(), nb::arg("settings"))
      .def("__call__", &MelFunction::compute, nb::arg("audio"),
           nb::sig("def __call__(self, audio: typing.Any) -> numpy.typing.NDArray[numpy.float32]"));
}

}  // namespace penstock::python
