#include "penstock/feed/row.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "penstock/core/error.h"
#include "penstock/decode/convert.h"
#include "penstock/features/half.h"
#include "penstock/feed/arrays.h"

namespace penstock {

void CacheCounter::add_to(CacheStats& sum) const {
  const auto get = [](const auto& n) { return n.load(std::memory_order_relaxed); };
  sum.hits += static_cast<std::int64_t>(get(hits_));
  sum.misses += static_cast<std::int64_t>(get(misses_));
  sum.recomputed += static_cast<std::int64_t>(get(recomputed_));
  sum.bytes_read += get(bytes_);
}

std::vector<ExtraKind> extra_kinds(const Dataset& dataset) {
  std::vector<ExtraKind> kinds;
  for (const DatasetExtra& e : dataset.extras)
    kinds.push_back({.name = e.name, .along = e.along, .width = e.width, .type = e.type});
  return kinds;
}

RowJob::RowJob(const RowInputs& inputs, StageClock& clock, CacheCounter& counter)
    : in_(inputs),
      clock_(clock),
      counter_(counter),
      decoder_({.sample_rate = inputs.config.mel.sample_rate, .resample = inputs.config.resample}) {}

void RowJob::fill(std::int64_t member, const Row& row) {
  const Config& config = in_.config;
  fill_mel(member, row);
  if (!from_cache(member, config.auto_rebuild_token_cache, [&] { return read_tokens(member, row); }))
    compute_tokens(member, row);
  for (std::size_t i = 0; i < in_.dataset.extras.size(); ++i)
    if (!from_cache(member, true, [&] { return read_extra(i, member, row); })) compute_extra(i, member, row);
  row.utterance = in_.dataset.members[static_cast<std::size_t>(member)];
  row.speaker = in_.dataset.index.utterance(row.utterance).speaker;
  probe(clock_, Stage::pad, [&] { pad(row); });
}

void RowJob::clear(const Row& row) {
  row.token_length = row.mel_length = 0;
  row.speaker = -1;
  row.utterance = -1;
  for (std::size_t i = 0; i < row.extras.size(); ++i) std::ranges::fill(row.extra(i), std::byte{0});
  probe(clock_, Stage::pad, [&] { pad(row); });
}

void RowJob::fill_mel(std::int64_t member, const Row& row) {
  std::span<const float> audio;  // where it is the samples that are cached
  const auto read = [&] { return read_samples(member, audio) || read_mel(member, row); };
  if (!from_cache(member, in_.config.auto_rebuild_mel_cache, read)) return compute_mel(member, row);
  if (!audio.empty()) place_mel(member, audio, row);
}

// ---- from the cache ----

/// False when the array has to be computed: it is not there, or it is damaged and may be rebuilt.
template <typename Read>
bool RowJob::from_cache(std::int64_t member, bool rebuild, Read&& read) {
  if (in_.config.preprocessing_mode == PreprocessingMode::runtime) return false;
  try {
    if (probe(clock_, Stage::cache, read)) return true;
    counter_.miss();
  } catch (const Error& e) {
    const std::int64_t number = in_.dataset.members[static_cast<std::size_t>(member)];
    if (!rebuild)
      throw SampleError("cache", pack_folder(in_.config, in_.dataset).string(), e.what(),
                        std::string(in_.dataset.index.utterance(number).id));
    counter_.recompute();
    in_.damaged(number, e.what());
  }
  return false;
}

/// False when there is no record of samples.
bool RowJob::read_samples(std::int64_t member, std::span<const float>& audio) {
  const StoreReader& store = in_.stores.mel;
  const PackEntry* record = store.record(member);
  if (!record || record->type != ElementType::int16) return false;
  const std::span<float> floats = floats_.of(static_cast<std::size_t>(record->rows));
  store.pack.read(*record, bytes_, [&](std::span<const std::byte> payload) {
    to_mono(SampleFormat::s16, payload.data(), 1, floats);
  });
  audio = floats;
  counter_.hit(record->bytes);
  return true;
}

bool RowJob::read_mel(std::int64_t member, const Row& row) {
  const StoreReader& store = in_.stores.mel;
  const PackEntry* record = store.record(member);
  if (!record) return mel_from_tree(member, row);
  const bool frames_first = in_.config.mel.layout == MelLayout::frames_first;
  const auto bins = static_cast<std::size_t>(in_.config.mel.n_mels);
  const auto frames = static_cast<std::size_t>(frames_first ? record->rows : record->columns);
  row.dirty_frames = std::max(row.dirty_frames, static_cast<std::int32_t>(frames));
  if (frames_first && record->type == ElementType::float32 && !in_.config.enable_memory_mapping) {
    store.pack.read(*record, std::as_writable_bytes(row.mel.first(frames * bins)));
  } else {
    // One run of floats with frames first; a run for each bin otherwise.
    const std::size_t runs = frames_first ? 1 : bins, run = frames_first ? frames * bins : frames;
    const std::size_t stride = row.mel.size() / bins;
    float* to = row.mel.data();
    store.pack.read(*record, bytes_, [&](std::span<const std::byte> payload) {
      for (std::size_t i = 0; i < runs; ++i)
        if (record->type == ElementType::float16)
          copy_row({reinterpret_cast<const std::uint16_t*>(payload.data()) + i * run, run}, to + i * stride);
        else
          copy_row({reinterpret_cast<const float*>(payload.data()) + i * run, run}, to + i * stride);
    });
  }
  row.mel_length = static_cast<std::int32_t>(frames);
  counter_.hit(record->bytes);
  return true;
}

bool RowJob::mel_from_tree(std::int64_t member, const Row& row) {
  const auto mel = tree_mel(in_.dataset, member, in_.config.mel.n_mels);
  if (!mel) return nothing_in(in_.dataset.mel_tree, member);
  const auto m = static_cast<std::size_t>(member);
  const NpyHeader& header = in_.dataset.mel_tree.item(m).header;
  const auto data = in_.dataset.mel_tree.read(m, id_of(member), bytes_);
  const std::ptrdiff_t bins = in_.config.mel.n_mels;
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(row.mel.size()) / bins;
  const bool frames_first = in_.config.mel.layout == MelLayout::frames_first;
  const std::ptrdiff_t frame_step = frames_first ? bins : 1, bin_step = frames_first ? 1 : stride;
  row.dirty_frames = std::max(row.dirty_frames, mel->frames);
  place_floats(header, data, row.mel.data(),
               mel->bins_first ? Placement{bin_step, frame_step} : Placement{frame_step, bin_step}, floats_);
  row.mel_length = mel->frames;
  round_as_cached(row);
  counter_.hit(data.size());
  return true;
}

bool RowJob::read_tokens(std::int64_t member, const Row& row) {
  const StoreReader& store = in_.stores.tokens;
  const PackEntry* record = store.record(member);
  if (!record) return tokens_from_tree(member, row);
  row.dirty_tokens = std::max(row.dirty_tokens, record->rows);
  store.pack.read(*record, std::as_writable_bytes(row.tokens.first(static_cast<std::size_t>(record->rows))));
  row.token_length = record->rows;
  counter_.hit(record->bytes);
  return true;
}

bool RowJob::tokens_from_tree(std::int64_t member, const Row& row) {
  const auto count = tree_tokens(in_.dataset, member);
  if (!count) return nothing_in(in_.dataset.token_tree, member);
  const auto m = static_cast<std::size_t>(member);
  NpyHeader header = in_.dataset.token_tree.item(m).header;
  const auto data = in_.dataset.token_tree.read(m, id_of(member), bytes_);
  header.shape = {*count, 1};
  row.dirty_tokens = std::max(row.dirty_tokens, *count);
  place_ints(header, data, row.tokens.data(), {.row_stride = 1});
  row.token_length = *count;
  counter_.hit(data.size());
  return true;
}

bool RowJob::read_extra(std::size_t extra, std::int64_t member, const Row& row) {
  const StoreReader& store = in_.stores.extras[extra];
  const PackEntry* record = store.record(member);
  if (!record) return false;
  const std::span<std::byte> to = row.extra(extra);
  store.pack.read(*record, to.first(record->bytes));
  std::ranges::fill(to.subspan(record->bytes), std::byte{0});
  counter_.hit(record->bytes);
  return true;
}

/// A tree has no array for this member that can be used: false when it has none, RecordError for a damaged
/// one.
bool RowJob::nothing_in(const NpyTree& tree, std::int64_t member) const {
  if (tree.empty()) return false;
  const NpyItem& item = tree.item(static_cast<std::size_t>(member));
  if (!item.there) return false;
  throw RecordError(fmt::format("{} {}", tree.path(id_of(member)),
                                item.problem.empty()
                                    ? fmt::format("has the shape ({}, {}), type {}", item.header.shape[0],
                                                  item.header.shape[1], npy_type_name(item.header.type))
                                    : item.problem));
}

// ---- from its origin ----

/// Bad samples leave with their utterance's id.
template <typename Work>
void RowJob::name_errors(std::int64_t member, Work&& work) {
  try {
    work();
  } catch (const SampleError& e) {
    throw SampleError(e.stage, e.path, e.cause, std::string(id_of(member)));
  } catch (const Error& e) {
    const std::int64_t number = in_.dataset.members[static_cast<std::size_t>(member)];
    throw SampleError("tokens", in_.dataset.index.where(number), e.what(), std::string(id_of(member)));
  }
}

std::string_view RowJob::id_of(std::int64_t member) const {
  return in_.dataset.index.utterance(in_.dataset.members[static_cast<std::size_t>(member)]).id;
}

void RowJob::compute_mel(std::int64_t member, const Row& row) {
  const auto m = static_cast<std::size_t>(member);
  name_errors(member, [&] {
    const Utterance utterance = in_.dataset.index.utterance(in_.dataset.members[m]);
    std::span<const float> audio = decode(utterance);
    const std::int64_t frames = in_.config.mel.frames(static_cast<std::int64_t>(audio.size()));
    if (const std::int32_t planned = in_.dataset.lengths[m].frames; frames != planned)
      throw SampleError("decode", std::string(utterance.path),
                        fmt::format("must have {} frames as planned, but has {}", planned, frames));
    if (in_.config.cache_kind == CacheKind::pcm)
      probe(clock_, Stage::decode, [&] { audio = round_to_16_bits(audio); });
    place_mel(member, audio, row);
  });
}

std::span<const std::int16_t> RowJob::compute_samples(std::int64_t member) {
  std::span<const std::int16_t> samples;
  name_errors(member, [&] {
    const Utterance u = in_.dataset.index.utterance(in_.dataset.members[static_cast<std::size_t>(member)]);
    const std::span<const float> audio = decode(u);
    const auto expected = resampled_length(u.audio.samples, u.audio.sample_rate, in_.config.mel.sample_rate);
    if (static_cast<std::int64_t>(audio.size()) != expected)
      throw SampleError("decode", std::string(u.path),
                        fmt::format("must have {} samples as indexed, but has {}", expected, audio.size()));
    samples = to_16_bits(audio);
  });
  return samples;
}

/// At the wanted rate.
std::span<const float> RowJob::decode(const Utterance& utterance) {
  const auto bytes = probe(clock_, Stage::read, [&] { return read(utterance); });
  return probe(clock_, Stage::decode, [&] { return decoder_.decode(bytes, utterance.path); });
}

std::span<const std::int16_t> RowJob::to_16_bits(std::span<const float> audio) {
  const std::span<std::int16_t> samples = samples_.of(audio.size());
  to_pcm16(audio, samples.data());
  return samples;
}

/// What a cache of samples would give back: a batch's bytes must not depend on what happens to be cached.
std::span<const float> RowJob::round_to_16_bits(std::span<const float> audio) {
  const std::span<float> floats = floats_.of(audio.size());
  to_mono(SampleFormat::s16, std::as_bytes(to_16_bits(audio)).data(), 1, floats);
  return floats;
}

void RowJob::place_mel(std::int64_t member, std::span<const float> audio, const Row& row) {
  const std::int32_t frames = in_.dataset.lengths[static_cast<std::size_t>(member)].frames;
  row.dirty_frames = std::max(row.dirty_frames, frames);
  row.mel_length = frames;
  probe(clock_, Stage::mel, [&] {
    transform(audio, row);
    round_as_cached(row);
  });
}

void RowJob::compute_tokens(std::int64_t member, const Row& row) {
  const Utterance utterance =
      in_.dataset.index.utterance(in_.dataset.members[static_cast<std::size_t>(member)]);
  row.dirty_tokens = static_cast<std::int32_t>(row.tokens.size());
  name_errors(member, [&] {
    row.token_length = probe(clock_, Stage::tokens, [&] {
      return in_.dataset.tokenizer->encode(utterance.text, row.tokens, text_scratch_);
    });
  });
}

void RowJob::compute_extra(std::size_t extra, std::int64_t member, const Row& row) {
  const DatasetExtra& from = in_.dataset.extras[extra];
  const auto m = static_cast<std::size_t>(member);
  const NpyItem& item = from.tree.item(m);
  name_errors(member, [&] {
    probe(clock_, Stage::cache, [&] {
      const auto bad = [&](const std::string& cause) {
        return SampleError("cache", from.tree.path(id_of(member)), cause);
      };
      if (!item.there) throw bad("is missing");
      if (!item.problem.empty()) throw bad(item.problem);
      const NpyHeader& h = item.header;
      const std::int64_t length = length_along(from.along, in_.dataset.lengths[m]);
      // [length, width], or the other way round; a vector is [1, width] in NumPy's order.
      const bool vector = from.along == Along::nothing;
      const bool upright = h.shape[0] == length && h.shape[1] == from.width;
      const bool transposed =
          h.shape[1] == length && h.shape[0] == from.width && (from.transposed || !upright);
      if (vector ? h.shape[0] * h.shape[1] != from.width : !upright && !transposed)
        throw bad(fmt::format("must be {} x {} as most of them are ({}), but is ({}, {})", length, from.width,
                              from.name, h.shape[0], h.shape[1]));
      const auto data = from.tree.read(m, id_of(member), bytes_);
      const Placement placement = vector       ? Placement{h.shape[1], 1}
                                  : transposed ? Placement{1, from.width}
                                               : Placement{from.width, 1};
      const std::span<std::byte> to = row.extra(extra);
      const std::size_t bytes = static_cast<std::size_t>(length * from.width) * element_bytes(from.type);
      if (from.type == ElementType::int32)
        place_ints(h, data, reinterpret_cast<std::int32_t*>(to.data()), placement);
      else
        place_floats(h, data, reinterpret_cast<float*>(to.data()), placement, floats_);
      std::ranges::fill(to.subspan(bytes), std::byte{0});
    });
  });
}

std::span<const std::byte> RowJob::read(const Utterance& utterance) {
  try {
    const File file = File::open(utterance.path.data(), in_.root.fd());
    if (file.stamp() != utterance.stamp)
      throw SampleError("read", std::string(utterance.path),
                        "has changed since it was indexed; run `penstock info --rescan` on the dataset");
    const auto bytes = bytes_.of(static_cast<std::size_t>(utterance.stamp.size));
    if (const std::size_t n = file.read_at(0, bytes); n != bytes.size())
      throw SampleError("read", std::string(utterance.path),
                        fmt::format("must have {} bytes, but ends after {}", bytes.size(), n));
    return bytes;
  } catch (const std::system_error& e) {
    throw SampleError("read", std::string(utterance.path), e.code().message());
  }
}

void RowJob::transform(std::span<const float> audio, const Row& row) {
  const MelOptions& options = in_.config.mel;
  const std::ptrdiff_t bins = options.n_mels;
  const std::ptrdiff_t stride =
      options.layout == MelLayout::frames_first ? bins : static_cast<std::ptrdiff_t>(row.mel.size()) / bins;
  if (in_.config.native_loading)
    in_.mel.compute(audio, row.mel.data(), stride, mel_scratch_);
  else
    mel_reference(options, audio, row.mel.data(), stride);
}

/// A batch's bytes must not depend on what happens to be cached.
void RowJob::round_as_cached(const Row& row) {
  if (in_.config.cache_type != CacheType::float16) return;
  const auto bins = static_cast<std::size_t>(in_.config.mel.n_mels),
             frames = static_cast<std::size_t>(row.mel_length);
  if (in_.config.mel.layout == MelLayout::frames_first)
    return round_through_half(row.mel.first(frames * bins));
  const std::size_t stride = row.mel.size() / bins;
  for (std::size_t b = 0; b < bins; ++b) round_through_half(row.mel.subspan(b * stride, frames));
}

void RowJob::pad(const Row& row) {
  const auto value = static_cast<float>(in_.config.mel_pad_value);
  const auto bins = static_cast<std::size_t>(in_.config.mel.n_mels);
  const auto from = static_cast<std::size_t>(row.mel_length), to = static_cast<std::size_t>(row.dirty_frames);
  if (from < to && in_.config.mel.layout == MelLayout::frames_first && value == 0) {
    std::memset(row.mel.data() + from * bins, 0, (to - from) * bins * sizeof(float));
  } else if (from < to && in_.config.mel.layout == MelLayout::frames_first) {
    std::fill(row.mel.begin() + from * bins, row.mel.begin() + to * bins, value);
  } else if (from < to) {
    const std::size_t frames = row.mel.size() / bins;
    for (std::size_t b = 0; b < bins; ++b)
      std::fill(row.mel.begin() + b * frames + from, row.mel.begin() + b * frames + to, value);
  }
  if (row.token_length < row.dirty_tokens)
    std::fill(row.tokens.begin() + row.token_length, row.tokens.begin() + row.dirty_tokens, SymbolTable::pad);
  row.dirty_frames = row.mel_length;
  row.dirty_tokens = row.token_length;
}

}  // namespace penstock
