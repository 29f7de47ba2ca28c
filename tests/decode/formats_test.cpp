#include <algorithm>

#include <gmock/gmock.h>

#include "tests/decode/files.h"

namespace penstock::test {
namespace {

using testing::HasSubstr;

struct Format {
  const char* name;
  int format;
  int rate;
  double error;  ///< of the decoded tones against the written ones
};
constexpr Format formats[] = {
    {"flac16", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 22050, 4e-5},
    {"flac24", SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 22050, 2e-7},
    {"vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 22050, 0.1},
    {"opus48", SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 0.1},
    {"opus16", SF_FORMAT_OGG | SF_FORMAT_OPUS, 16000, 0.1},
    {"mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 22050, 0.1},
    {"mp3_44", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 0.1},
    {"rf64", SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 22050, 4e-5},
    {"rifx", SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, 22050, 4e-5},
    {"w64", SF_FORMAT_W64 | SF_FORMAT_PCM_16, 22050, 4e-5},
    {"ulaw", SF_FORMAT_WAV | SF_FORMAT_ULAW, 22050, 0.05},
    {"aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 22050, 4e-5},
};

TEST(Formats, ProbeAndDecodeAgreeAndTheSignalComesBack) {
  for (const Format& f : formats) {
    for (const int channels : {1, 2}) {
      for (const std::size_t samples : {1U, 100U, 1152U, 30011U}) {
        SCOPED_TRACE(testing::Message() << f.name << " channels " << channels << " samples " << samples);
        const Bytes bytes = encode(f.format, samples, f.rate, channels);
        const AudioInfo info = probe(bytes);
        EXPECT_EQ(info.samples, static_cast<std::int64_t>(samples));
        EXPECT_EQ(info.sample_rate, f.rate);
        EXPECT_EQ(info.channels, channels);
        const auto decoded = decode(bytes, {.sample_rate = f.rate});
        ASSERT_EQ(decoded.size(), samples);
        if (samples < 30000) continue;
        const auto expected = tones(samples, f.rate);
        double worst = 0;
        for (std::size_t i = 2000; i + 2000 < samples; ++i)
          worst =
              std::max(worst, std::abs(static_cast<double>(decoded[i]) - static_cast<double>(expected[i])));
        EXPECT_LT(worst, f.error);
      }
    }
  }
}

/// Without the first frame, which is the Xing header: what an encoder leaves that writes to a pipe.
Bytes without_length(Bytes mp3) {
  const auto is_sync = [&](std::size_t i) {
    return mp3[i] == mp3[0] && mp3[i + 1] == mp3[1] && i + 3 < mp3.size();
  };
  std::size_t next = 4;
  while (!is_sync(next)) ++next;
  mp3.erase(mp3.begin(), mp3.begin() + static_cast<std::ptrdiff_t>(next));
  return mp3;
}

TEST(Formats, AnMp3ThatDoesNotSayItsLengthIsReadToItsEnd) {
  for (const int rate : {16000, 22050, 44100}) {
    const std::size_t samples = static_cast<std::size_t>(rate) * 5;
    const Bytes bytes = without_length(encode(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, samples, rate));
    const AudioInfo info = probe(bytes);
    EXPECT_GE(info.samples, static_cast<std::int64_t>(samples));
    EXPECT_LE(info.samples, static_cast<std::int64_t>(samples) + 3 * 1152);
    EXPECT_EQ(decode(bytes, {.sample_rate = rate}).size(), static_cast<std::size_t>(info.samples));
  }
}

TEST(Formats, AnMp3MayBeginAndEndWithATag) {
  const Bytes plain = encode(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 30011, 22050);
  Bytes tagged;
  append_text(tagged, std::string_view("ID3\3\0\0\0\0\2\0", 10));
  tagged.resize(10 + 256);
  tagged.insert(tagged.end(), plain.begin(), plain.end());
  append_text(tagged, "TAG");
  tagged.resize(tagged.size() + 125);
  EXPECT_EQ(decode(tagged), decode(plain));
  EXPECT_EQ(probe(tagged).samples, 30011);
}

TEST(Formats, AnMp3ThatIsShorterThanItsHeaderSaysIsTruncated) {
  Bytes bytes = encode(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 60000, 22050);
  bytes.resize(bytes.size() / 2);
  EXPECT_THAT(cause_of(bytes), HasSubstr("truncated: the header promises"));
}

TEST(Formats, AFlacThatIsShorterThanItsHeaderSaysIsTruncated) {
  Bytes bytes = encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 60000, 22050);
  bytes.resize(bytes.size() / 2);
  EXPECT_THAT(cause_of(bytes, true),
              testing::MatchesRegex("damaged: only [0-9]+ of 60000 samples can be decoded: .*flac.*"));
}

TEST(Formats, AFlacThatDoesNotSayItsLengthIsCounted) {
  Bytes bytes = encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 60000, 22050);
  const auto whole = decode(bytes);
  bytes[21] &= std::byte{0xF0};  // STREAMINFO's 36-bit length
  std::fill_n(bytes.begin() + 22, 4, std::byte{0});
  EXPECT_EQ(probe(bytes).samples, 60000);
  EXPECT_EQ(decode(bytes), whole);
}

TEST(Formats, ALengthThatNoFileCanHaveIsRefusedBeforeMemoryIsTaken) {
  Bytes bytes = encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 60000, 22050);
  bytes[21] |= std::byte{0x0F};
  EXPECT_THAT(cause_of(bytes), HasSubstr("must be at most 4 hours, but its header promises"));
  bytes[21] &= std::byte{0xF0};
  bytes[22] = std::byte{0x12};  // 3.8 hours
  EXPECT_THAT(cause_of(bytes), HasSubstr("must have at most 8192 samples a byte"));
}

TEST(Formats, OneDecoderReadsThemAllInTurn) {
  Decoder decoder({});
  for (int round = 0; round < 2; ++round) {
    for (const Format& f : formats) {
      const Bytes bytes = encode(f.format, 3000, f.rate);
      const auto samples = decoder.decode(bytes, f.name);
      EXPECT_TRUE(std::ranges::equal(samples, decode(bytes))) << f.name;
    }
  }
}

}  // namespace
}  // namespace penstock::test
