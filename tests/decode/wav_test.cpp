#include <limits>

#include <gmock/gmock.h>

#include "tests/decode/files.h"

namespace penstock::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Wav, Pcm8IsUnsigned) {
  const WavFile wav{.bits = 8, .data = bytes_of(std::vector<std::uint8_t>{0, 128, 255})};
  EXPECT_THAT(decode(wav.bytes()), ElementsAre(-1.0F, 0.0F, 127.0F / 128));
}

TEST(Wav, Pcm16IsDividedBy32768) {
  EXPECT_THAT(decode(WavFile{}.bytes()),
              ElementsAre(0.0F, 1 / 32768.0F, -1 / 32768.0F, 32767 / 32768.0F, -1.0F, 1000 / 32768.0F));
}

TEST(Wav, Pcm24IsDividedBy8388608) {
  const WavFile wav{.bits = 24,
                    .data = bytes_of(std::vector<std::uint8_t>{1, 0, 0, 0xFF, 0xFF, 0xFF, 0, 0, 0x80})};
  EXPECT_THAT(decode(wav.bytes()), ElementsAre(0x1p-23F, -0x1p-23F, -1.0F));
}

TEST(Wav, Pcm32RoundsToTheNearestFloat) {
  const WavFile wav{
      .bits = 32,
      .data = bytes_of(std::vector<std::int32_t>{1, 0x7FFFFFFF, std::numeric_limits<int>::min()})};
  EXPECT_THAT(decode(wav.bytes()), ElementsAre(0x1p-31F, 1.0F, -1.0F));
}

TEST(Wav, FloatsKeepTheirValueEvenOverOne) {
  const WavFile f32{.tag = 3, .bits = 32, .data = bytes_of(std::vector<float>{0.1F, -2.5F, 1e-40F})};
  EXPECT_THAT(decode(f32.bytes()), ElementsAre(0.1F, -2.5F, 1e-40F));
  const WavFile f64{.tag = 3, .bits = 64, .data = bytes_of(std::vector<double>{0.1, -2.5})};
  EXPECT_THAT(decode(f64.bytes()), ElementsAre(0.1F, -2.5F));
}

TEST(Wav, ExtensibleIsReadByItsSubFormat) {
  EXPECT_EQ(decode(WavFile{.extensible = true}.bytes()), decode(WavFile{}.bytes()));
  const WavFile f32{.tag = 3, .bits = 32, .data = bytes_of(std::vector<float>{0.25F}), .extensible = true};
  EXPECT_THAT(decode(f32.bytes()), ElementsAre(0.25F));
}

TEST(Wav, BitsThatDoNotFillTheirBytesAreLeftAligned) {
  EXPECT_EQ(decode(WavFile{.bits = 12}.bytes()), decode(WavFile{.bits = 16}.bytes()));
}

TEST(Wav, ChannelsAreAveraged) {
  const auto data = bytes_of(std::vector<std::int16_t>{100, 200, 301, -4, 5, 6});
  EXPECT_THAT(decode(WavFile{.channels = 2, .data = data}.bytes()),
              ElementsAre(150 / 32768.0F, 148.5F / 32768.0F, 5.5F / 32768.0F));
  EXPECT_THAT(decode(WavFile{.channels = 3, .data = data}.bytes()),
              ElementsAre(static_cast<float>(601.0 / 3 / 32768), static_cast<float>(7.0 / 3 / 32768)));
  EXPECT_THAT(decode(WavFile{.channels = 6, .data = data}.bytes()),
              ElementsAre(static_cast<float>(608.0 / 6 / 32768)));
}

TEST(Wav, EveryLengthIsConvertedToItsLastSample) {
  for (std::size_t n = 1; n < 200; ++n) {
    std::vector<std::int16_t> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::int16_t>(i * 331 - 30000);
    const auto decoded = decode(WavFile{.data = bytes_of(values)}.bytes());
    ASSERT_EQ(decoded.size(), n);
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(decoded[i], static_cast<float>(values[i]) / 32768) << n << ' ' << i;
  }
}

TEST(Wav, OtherChunksAreSkippedWithTheirPadByte) {
  const auto plain = decode(WavFile{}.bytes());
  for (const std::uint32_t size : {0U, 1U, 2U, 7U, 4095U, 4096U, 100001U}) {
    const WavFile wav{
        .before_format = chunk("JUNK", size), .between = chunk("LIST", size), .behind = chunk("id3 ", size)};
    EXPECT_EQ(decode(wav.bytes()), plain) << size;
    EXPECT_EQ(probe(wav.bytes()).samples, 6) << size;
  }
}

TEST(Wav, OddDataIsFollowedByAPadByte) {
  const WavFile wav{.bits = 8, .data = Bytes(5, std::byte{128}), .behind = chunk("LIST", 10)};
  EXPECT_EQ(decode(wav.bytes()).size(), 5U);
}

TEST(Wav, DataMayStandBeforeItsFormat) {
  const Bytes wav = WavFile{}.bytes();
  Bytes turned(wav.begin(), wav.begin() + 12);
  turned.insert(turned.end(), wav.begin() + 36, wav.end());
  turned.insert(turned.end(), wav.begin() + 12, wav.begin() + 36);
  EXPECT_EQ(decode(turned), decode(wav));
}

TEST(Wav, SizesOfStreamingWritersMeanEverythingToTheEnd) {
  const auto plain = decode(WavFile{}.bytes());
  for (const std::int64_t size : {0LL, 0x7FFFF000LL, 0x7FFFFFFFLL, 0x80000000LL, 0xFFFFFFFFLL}) {
    EXPECT_EQ(decode(WavFile{.declared = size}.bytes()), plain) << size;
    EXPECT_EQ(probe(WavFile{.declared = size}.bytes()).samples, 6) << size;
  }
}

TEST(Wav, AStreamThatWasCutEndsWithItsLastWholeBlock) {
  WavFile wav{.channels = 2, .declared = 0xFFFFFFFF};
  wav.data.pop_back();
  EXPECT_EQ(decode(wav.bytes()).size(), 2U);
}

TEST(Wav, ProbeTellsRateAndChannels) {
  const AudioInfo info = probe(WavFile{.channels = 3, .sample_rate = 48000}.bytes());
  EXPECT_EQ(info.samples, 2);
  EXPECT_EQ(info.sample_rate, 48000);
  EXPECT_EQ(info.channels, 3);
}

TEST(Wav, ATruncatedFileSaysHowMuchIsMissing) {
  EXPECT_EQ(cause_of(WavFile{.declared = 88200}.bytes()),
            "truncated: the header promises 88200 bytes of audio, but 12 are there");
}

TEST(Wav, HeadersThatMakeNoSenseAreRefusedByName) {
  EXPECT_EQ(cause_of(WavFile{.channels = 0}.bytes()), "WAV must have at least 1 channel, but has 0");
  EXPECT_EQ(cause_of(WavFile{.bits = 0}.bytes()), "WAV must have 1 to 32 bits a sample, but has 0");
  EXPECT_EQ(cause_of(WavFile{.bits = 64}.bytes()), "WAV must have 1 to 32 bits a sample, but has 64");
  EXPECT_EQ(cause_of(WavFile{.tag = 3, .bits = 16}.bytes()),
            "WAV must have 32 or 64 floating-point bits a sample, but has 16");
  EXPECT_EQ(cause_of(WavFile{.block = 3}.bytes()),
            "WAV block must be 2 bytes (1 channels of 16 bits), but is 3");
  EXPECT_EQ(cause_of(WavFile{.channels = 65535}.bytes()),
            "WAV block must be 131070 bytes (65535 channels of 16 bits), but is 65534");
  EXPECT_EQ(cause_of(WavFile{.sample_rate = 0}.bytes()), "sample rate must be from 1000 to 384000, but is 0");
  EXPECT_EQ(cause_of(WavFile{.sample_rate = 0xFFFFFFFF}.bytes()),
            "sample rate must be from 1000 to 384000, but is 2147483647");
  EXPECT_EQ(cause_of(WavFile{.declared = 5}.bytes()),
            "audio must be whole blocks of 2 bytes, but has 5 bytes");
  EXPECT_EQ(cause_of(WavFile{.data = {}}.bytes()), "must have at least 1 sample, but has none");
}

TEST(Wav, MissingChunksAreNamed) {
  const Bytes wav = WavFile{}.bytes();
  EXPECT_EQ(cause_of({wav.begin(), wav.begin() + 36}),
            "WAV must have a \"data\" chunk, but none is in the 36 bytes up to the end of the file");
  EXPECT_EQ(cause_of({wav.begin(), wav.begin() + 12}),
            "WAV must have a \"fmt \" chunk, but none is in the 12 bytes up to the end of the file");
  Bytes zeros(wav.begin(), wav.begin() + 36);
  zeros.resize(1 << 20);
  EXPECT_THAT(cause_of(zeros), HasSubstr("up to the 4096th chunk"));
}

TEST(Wav, NotANumberIsNamedByItsSample) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t at : {0U, 17U, 998U}) {
      std::vector<float> values(999, 0.5F);
      values[at] = bad;
      const WavFile wav{.tag = 3, .bits = 32, .data = bytes_of(values)};
      EXPECT_THAT(cause_of(wav.bytes(), true), HasSubstr("but sample " + std::to_string(at) + " is"));
      // In one of three channels, the frame's number.
      const WavFile three{.tag = 3, .channels = 3, .bits = 32, .data = bytes_of(values)};
      EXPECT_THAT(cause_of(three.bytes(), true), HasSubstr("but sample " + std::to_string(at / 3) + " is"));
    }
  }
  const WavFile huge{.tag = 3, .bits = 64, .data = bytes_of(std::vector<double>{0, 1e300})};
  EXPECT_THAT(cause_of(huge.bytes(), true), HasSubstr("sample 1 is inf"));
}

TEST(Wav, TheResultOfTheNextFileTakesThePlaceOfTheLast) {
  Decoder decoder({});
  const Bytes longer = WavFile{.data = Bytes(20000)}.bytes();
  const Bytes shorter = WavFile{}.bytes();
  EXPECT_EQ(decoder.decode(longer, "a").size(), 10000U);
  const float* memory = decoder.decode(longer, "a").data();
  EXPECT_EQ(decoder.decode(shorter, "b").size(), 6U);
  EXPECT_EQ(decoder.decode(shorter, "b").data(), memory);
}

}  // namespace
}  // namespace penstock::test
