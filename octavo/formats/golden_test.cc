// Against tables made with ml_dtypes: tests/golden/formats/make_golden.py.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "octavo/formats/convert.h"

namespace octavo {
namespace {

// Pairs of hexadecimal numbers, one a line.
std::vector<std::pair<std::uint32_t, std::uint32_t>> read_pairs(const std::string& name) {
  std::ifstream file(std::string(OCTAVO_GOLDEN_DIR) + "/formats/" + name);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    std::uint32_t first = 0, second = 0;
    fields >> std::hex >> first >> second;
    pairs.emplace_back(first, second);
  }
  return pairs;
}

// Where Octavo means to differ: ml_dtypes takes everything between 2^-127 and 2^-126 up; here the
// nearer one is chosen.
bool is_known_difference(Format format, std::uint32_t bf16) {
  return format == Format::e8m0fnu && bf16 > 0x0040 && bf16 < 0x0060;
}

template <Format F>
void check_encode(const char* file) {
  const auto runs = read_pairs(file);
  ASSERT_FALSE(runs.empty()) << "golden table missing";
  std::size_t run = 0;
  std::uint32_t differences = 0;
  for (std::uint32_t input = 0; input < 65536; ++input) {
    while (run + 1 < runs.size() && runs[run + 1].first <= input) ++run;
    const float x = decode<Format::bf16>(static_cast<std::uint16_t>(input));
    const std::uint32_t got = encode<F>(x, Rounding::nearest_even, Overflow::special);
    if (is_known_difference(F, input)) {
      differences += got != runs[run].second;
      continue;
    }
    ASSERT_EQ(got, runs[run].second) << format_name(F) << " of bf16 0x" << std::hex << input;
  }
  EXPECT_EQ(differences, F == Format::e8m0fnu ? 31u : 0u)
      << "a difference that is listed is no more";
}

template <Format F>
void check_decode(const char* file) {
  const auto values = read_pairs(file);
  ASSERT_EQ(values.size(), 1u << bits_per_element(F));
  for (const auto& [code, bits] : values) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(decode<F>(static_cast<Code<F>>(code))), bits)
        << format_name(F) << " code 0x" << std::hex << code;
  }
}

TEST(FormatsGolden, E4m3fn) {
  check_encode<Format::e4m3fn>("bf16_to_e4m3fn.txt"),
      check_decode<Format::e4m3fn>("e4m3fn_to_f32.txt");
}
TEST(FormatsGolden, E5m2) {
  check_encode<Format::e5m2>("bf16_to_e5m2.txt"), check_decode<Format::e5m2>("e5m2_to_f32.txt");
}
TEST(FormatsGolden, E4m3fnuz) {
  check_encode<Format::e4m3fnuz>("bf16_to_e4m3fnuz.txt"),
      check_decode<Format::e4m3fnuz>("e4m3fnuz_to_f32.txt");
}
TEST(FormatsGolden, E5m2fnuz) {
  check_encode<Format::e5m2fnuz>("bf16_to_e5m2fnuz.txt"),
      check_decode<Format::e5m2fnuz>("e5m2fnuz_to_f32.txt");
}
TEST(FormatsGolden, E8m0fnu) {
  check_encode<Format::e8m0fnu>("bf16_to_e8m0fnu.txt"),
      check_decode<Format::e8m0fnu>("e8m0fnu_to_f32.txt");
}
TEST(FormatsGolden, E2m1fn) {
  check_encode<Format::e2m1fn>("bf16_to_e2m1fn.txt"),
      check_decode<Format::e2m1fn>("e2m1fn_to_f32.txt");
}

}  // namespace
}  // namespace octavo
