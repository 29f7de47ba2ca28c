// Against Python's package: tests/python/test_train_parts.py.
#include "train/safetensors.h"

#include <cstring>
#include <random>

#include <gmock/gmock.h>

#include "../temp_folder.h"
#include "penstock/core/error.h"
#include "penstock/core/file.h"

namespace penstock::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

NamedTensors one_of_each() {
  torch::manual_seed(2);
  return {{"f64", torch::randn({2, 3}, torch::kFloat64)},
          {"f32", torch::randn({3, 1, 2})},
          {"f16", torch::randn({5}).to(torch::kFloat16)},
          {"bf16", torch::randn({5}).to(torch::kBFloat16)},
          {"i64", torch::tensor({1, -2}, torch::kInt64)},
          {"i32", torch::tensor({1, -2, 3}, torch::kInt32)},
          {"u8", torch::tensor({1, 2, 255}, torch::kUInt8)},
          {"bool", torch::tensor({1, 0, 1}, torch::kUInt8).to(torch::kBool)},
          {"scalar", torch::full({}, 7.5)},
          {"empty", torch::empty({0, 4})},
          {"nan \"quoted\" \xd8\xb3", torch::full({1}, std::nan(""))},
          {"not contiguous", torch::randn({4, 6}).t()}};
}

/// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, '\0');
}

TEST(SafeTensors, WhatIsSavedIsLoaded) {
  const TempFolder folder;
  const NamedTensors tensors = one_of_each();
  save_safetensors(folder / "a", tensors, {{"note", "of a \"test\""}});
  const SafeTensors loaded = load_safetensors(folder / "a");
  EXPECT_EQ(loaded.metadata, (std::map<std::string, std::string>{{"note", "of a \"test\""}}));
  ASSERT_EQ(loaded.tensors.size(), tensors.size());
  NamedTensors into;
  for (const auto& [name, t] : tensors) into.emplace_back(name, torch::zeros_like(t));
  assign(into, loaded.tensors, "a");
  for (std::size_t i = 0; i < into.size(); ++i) {
    const torch::Tensor a = into[i].second.contiguous(), b = tensors[i].second.contiguous();
    EXPECT_EQ(std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()), 0) << into[i].first;
  }
}

TEST(SafeTensors, DataAreAligned) {
  const TempFolder folder;
  save_safetensors(folder / "a", one_of_each());
  const std::string bytes = read_text(folder / "a");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  std::size_t last = 8;
  for (const auto& [name, t] : load_safetensors(folder / "a").tensors) {
    EXPECT_LE(t.element_size(), last);
    last = t.element_size();
  }
  save_safetensors(folder / "none", {});
  EXPECT_TRUE(load_safetensors(folder / "none").tensors.empty());
}

TEST(SafeTensors, AFileCutAnywhereIsNamed) {
  const TempFolder folder;
  save_safetensors(folder / "a", one_of_each(), {{"note", "x"}});
  const std::string whole = read_text(folder / "a");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_file(folder / "cut", std::string_view(whole).substr(0, size));
    EXPECT_THROW(load_safetensors(folder / "cut"), Error) << size;
  }
  write_file(folder / "cut", whole + "x");
  EXPECT_THAT([&] { load_safetensors(folder / "cut"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("cut: "), HasSubstr("bytes of data"))));
  EXPECT_THAT([&] { load_safetensors(folder / "nowhere"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("nowhere"), HasSubstr("No such file"))));
}

TEST(SafeTensors, ADamagedHeaderIsAnErrorOrAnotherHeader) {
  const TempFolder folder;
  save_safetensors(folder / "a", one_of_each());
  const std::string whole = read_text(folder / "a");
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  std::mt19937 random(9);
  int refused = 0;
  constexpr int tries = 3000;
  for (int i = 0; i < tries; ++i) {
    std::string damaged = whole;
    for (unsigned n = 1 + random() % 3; n > 0; --n)
      damaged[random() % (8 + length)] =
          random() % 2 == 0 ? static_cast<char>(random()) : "0123456789[]{},:\""[random() % 17];
    write_file(folder / "damaged", damaged);
    try {
      for (const auto& [name, t] : load_safetensors(folder / "damaged").tensors)
        EXPECT_LE(t.nbytes(), whole.size());
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("damaged: "));
      ++refused;
    }
  }
  EXPECT_GT(refused, tries / 2);
}

TEST(SafeTensors, EveryKindOfDamageIsNamed) {
  const TempFolder folder;
  const std::string f = R"("dtype":"F32","shape":[2],"data_offsets":)";
  const struct {
    std::string bytes, message;
  } cases[] = {
      {file_of("no JSON", 0), "must be JSON"},
      {file_of("[]", 0), "must be a JSON object"},
      {file_of("", 0), "must be JSON"},
      {std::string(8, '\xff') + "{}", "must fit"},
      {std::string("\0\0\0\0\0\0\0\x80", 8) + "{}", "must fit 2 bytes"},
      {file_of(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), "a: dtype must be one of"},
      {file_of(R"({"a":{"dtype":3,"shape":[2],"data_offsets":[0,8]}})", 8), "a: dtype must be a text"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "a: shape must be"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "a: shape must be"},
      {file_of(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "a: shape must be"},
      {file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "must fit dtype and shape"},
      {file_of(R"({"a":{"dtype":"F32","shape":[0,4611686018427387903,9],"data_offsets":[0,0]}})", 0),
       "too large"},
      {file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387903],"data_offsets":[0,8]}})", 8),
       "too large"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "a: there must be dtype"},
      {file_of(R"({"a":7})", 8), "a: there must be dtype"},
      {file_of("{\"a\":{" + f + "[8,0]}}", 8), "must fit dtype and shape"},
      {file_of("{\"a\":{" + f + "[0]}}", 8), "must be two numbers"},
      {file_of("{\"a\":{" + f + "[0,8]},\"b\":{" + f + "[4,12]}}", 12),
       "b: its data must start at 8, but the header has 4"},
      {file_of("{\"a\":{" + f + "[0,8]},\"b\":{" + f + "[0,8]}}", 8), "its data must start at 8"},
      {file_of("{\"a\":{" + f + "[4,12]}}", 12), "a: its data must start at 0"},
      {file_of("{\"a\":{" + f + "[0,8]}}", 7), "there must be 8 bytes of data, but there are 7"},
      {file_of("{\"a\":{" + f + "[0,8]},\"a\":{" + f + "[0,8]}}", 8), "a: is in the header twice"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__ must hold texts"},
      {file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 0) + "\x02",
       "a: a BOOL must be 0 or 1"},
  };
  for (const auto& c : cases) {
    write_file(folder / "x", c.bytes);
    EXPECT_THAT([&] { load_safetensors(folder / "x"); },
                ThrowsMessage<Error>(AllOf(HasSubstr((folder / "x").string() + ": "), HasSubstr(c.message))))
        << c.bytes;
  }
}

TEST(SafeTensors, WhatCannotBeSavedIsNamed) {
  const TempFolder folder;
  const torch::Tensor one = torch::ones({1});
  const auto saved = [&](const NamedTensors& tensors, const char* to = "a") {
    return [&folder, tensors, to] { save_safetensors(folder / to, tensors); };
  };
  EXPECT_THAT(saved({{"x", one}, {"x", one}}),
              ThrowsMessage<Error>(HasSubstr("x: a tensor's name must be new")));
  EXPECT_THAT(saved({{"__metadata__", one}}), ThrowsMessage<Error>(HasSubstr("must be new")));
  EXPECT_THAT(saved({{"x", one.to(torch::kInt16)}}), ThrowsMessage<Error>(HasSubstr("x: has a type")));
  EXPECT_THAT(saved({{"\xff", one}}), ThrowsMessage<Error>(HasSubstr("UTF-8")));
  EXPECT_THAT(saved({{"x", one}}, "no/where"),
              ThrowsMessage<Error>(HasSubstr("no/where: cannot be created")));
}

TEST(SafeTensors, AssigningNamesTheFirstDifferenceAndCopiesNothing) {
  const auto zero = [] { return torch::zeros({2}); };
  const NamedTensors to{{"a", zero()}, {"b", zero()}};
  const auto assigned = [&](const NamedTensors& from) { return [&to, from] { assign(to, from, "here"); }; };
  const torch::Tensor ones = torch::ones({2});
  EXPECT_THAT(assigned({{"a", ones}}), ThrowsMessage<Error>("here: b is missing"));
  EXPECT_THAT(assigned({{"b", ones}, {"c", ones}, {"a", ones}}),
              ThrowsMessage<Error>("here: c belongs to nothing here"));
  EXPECT_THAT(assigned({{"a", ones}, {"b", torch::ones({3})}}),
              ThrowsMessage<Error>("here: b must be Float [2], but is Float [3]"));
  EXPECT_THAT(assigned({{"a", ones}, {"b", ones.to(torch::kFloat64)}}),
              ThrowsMessage<Error>("here: b must be Float [2], but is Double [2]"));
  EXPECT_EQ(to[0].second.sum().item<float>(), 0);
}

}  // namespace
}  // namespace penstock::train
