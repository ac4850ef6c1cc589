// Broken contracts of ops::gemm and of packing: refused with operation, given and expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "octavo/ops/gemm_testing.h"

namespace octavo::ops::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_refusal(const std::function<void()>& call, const std::string& operation,
                    const std::string& given, const std::string& wanted) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << given;
  } catch (const ContractError& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith(operation + ": given "), HasSubstr(given),
                                    HasSubstr(", expected "), HasSubstr(wanted)));
  }
}

// A (2, 96) times W (4, 96), all of them fine until a test changes something.
class GemmRefusals : public ::testing::Test {
 protected:
  using Change = std::function<void(Operand&)>;

  void refused(const std::string& given, const std::string& wanted) {
    expect_refusal([&] { gemm(a, w, c); }, "gemm", given, wanted);
    EXPECT_EQ(out, std::vector<float>(64, 7.0f)) << "C was touched";
  }
  void refused_a(const Change& change, const std::string& given, const std::string& wanted) {
    const Operand before = a;
    change(a);
    refused("a with " + given, wanted);
    a = before;
  }
  // The weight is checked alike where it is packed.
  void refused_w(const Change& change, const std::string& given, const std::string& wanted) {
    const Operand before = w;
    change(w);
    refused("w with " + given, wanted);
    expect_refusal([&] { pack_weight(w); }, "pack_weight", "w with " + given, wanted);
    w = before;
  }
  void refused_both(const Change& change, const std::string& given, const std::string& wanted) {
    refused_a(change, given, wanted);
    refused_w(change, given, wanted);
  }

  std::vector<float> out = std::vector<float>(64, 7.0f), scale = std::vector<float>(64, 1.0f);
  std::vector<std::uint32_t> codes = std::vector<std::uint32_t>(1024, 0x38383838);
  Operand a{{Format::e4m3fn, codes.data(), 2, 96, 96}, {}, false};
  Operand w{{Format::e4m3fn, codes.data(), 4, 96, 96}, {}, false};
  Output c{Format::f32, out.data(), 4};
};

TEST_F(GemmRefusals, TheOperandsAreFine) {
  gemm(a, w, c);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(out[i], 96.0f);
}

TEST_F(GemmRefusals, Sizes) {
  refused_both([](Operand& o) { o.matrix.data = nullptr; }, "data null", "96)");
  refused_both([](Operand& o) { o.matrix.cols = 0; }, "K = 0", "at least 1");
  refused_both([](Operand& o) { o.matrix.stride = 95; }, "stride 95", "at least 96, one row");
  refused_both(
      [](Operand& o) {
        o.transposed = true;
        o.matrix.stride = 1;
      },
      "stride 1", "one column");
  a.matrix.cols = 64;
  refused("a (2, 64) and w (4, 96)", "one K");
  const PackedWeight packed = pack_weight(w);
  expect_refusal([&] { gemm(a, packed, c); }, "gemm", "a (2, 64) and w (4, 96)", "one K");
}

TEST_F(GemmRefusals, Formats) {
  for (const Format format : {Format::f16, Format::e2m1fn, Format::e8m0fnu}) {
    refused_both([&](Operand& o) { o.matrix.format = format; },
                 std::string("elements in ") + format_name(format), "e5m2fnuz, bf16 or f32");
  }
  for (const Format format : {Format::f16, Format::e4m3fn, Format::e5m2}) {
    c.format = format;
    refused(std::string("c in ") + format_name(format), "f32 or bf16");
  }
}

TEST_F(GemmRefusals, Alignment) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(codes.data());
  refused_both(
      [&](Operand& o) {
        o.matrix.format = Format::bf16;
        o.matrix.data = bytes + 1;
      },
      "misaligned bf16 elements", "aligned to 2 bytes");
  refused_both(
      [&](Operand& o) {
        o.matrix.format = Format::f32;
        o.matrix.data = bytes + 2;
      },
      "misaligned f32 elements", "aligned to 4 bytes");
  refused_both([&](Operand& o) { o.scale = {bytes + 2, 1, {128, 128}, Format::f32}; },
               "misaligned scales", "f32 aligned to 4 bytes");
  c.data = reinterpret_cast<std::uint8_t*>(out.data()) + 2;
  refused("c with misaligned f32", "aligned to 4 bytes");
  c.format = Format::bf16;
  c.data = reinterpret_cast<std::uint8_t*>(out.data()) + 1;
  refused("c with misaligned bf16", "aligned to 2 bytes");
  c = {Format::f32, out.data(), 4};
  GemmOptions options;
  options.bias = {reinterpret_cast<const float*>(bytes + 1), 4};
  expect_refusal([&] { gemm(a, w, c, options); }, "gemm", "misaligned bias", "aligned to 4 bytes");
  options.bias = {out.data(), 3};
  expect_refusal([&] { gemm(a, w, c, options); }, "gemm", "a bias of 3 values", "4, the rows of w");
}

TEST_F(GemmRefusals, Scales) {
  const auto with = [&](BlockSize block, std::size_t stride, Format format) {
    return [=, this](Operand& o) { o.scale = {scale.data(), stride, block, format}; };
  };
  refused_both(with({128, 48}, 2, Format::f32), "scales per block of 128 x 48",
               "32, 64, a multiple of 128 or all columns");
  refused_both(with({1, 16}, 6, Format::f32), "scales per block of 1 x 16", "32, 64");
  refused_both(with({0, 128}, 2, Format::f32), "scales per block of 0 x 128", "at least one row");
  refused_both(with({128, 0}, 2, Format::f32), "scales per block of 128 x 0", "32, 64");
  refused_both(with({1, 32}, 2, Format::f32), "scales of stride 2", "at least 3");
  refused_both(with({1, 32}, 3, Format::bf16), "scales in bf16", "f32 or e8m0fnu");
  refused_both(with({1, 32}, 3, Format::e4m3fn), "scales in e4m3fn", "f32 or e8m0fnu");
  // All columns in one block is no block of 96.
  w.scale = {scale.data(), 1, {128, 96}, Format::f32};
  EXPECT_NO_THROW(gemm(a, w, c));
}

TEST_F(GemmRefusals, Output) {
  c.data = nullptr;
  refused("c null", "(2, 4)");
  c = {Format::f32, out.data(), 3};
  refused("c with stride 3", "at least 4, one row");
}

TEST_F(GemmRefusals, WhatALevelLacks) {
  const auto call = [&](Isa isa, std::optional<GemmShape> shape = {},
                        std::optional<Arithmetic> arithmetic = {}) {
    return [=, this] { gemm(a, w, c, {.shape = shape, .arithmetic = arithmetic, .isa = isa}); };
  };
  expect_refusal(call(Isa::generic, GemmShape::tiled), "plan_gemm", "tiled on generic", "plain");
  expect_refusal(call(Isa::generic, {}, Arithmetic::dot), "plan_gemm", "dot on generic",
                 "avx512bf16");
  expect_refusal(call(Isa::avx2, GemmShape::plain), "plan_gemm", "plain on avx2", "fused or tiled");
  for (const Isa isa : {Isa::avx2, Isa::avx512bf16}) {
    if (kernels::is_built(isa) && supports(cpu_features(), isa)) {
      EXPECT_NO_THROW(call(isa)());
    } else {
      expect_refusal(call(isa), "gemm_kernel", isa_name(isa), "that this machine has");
    }
  }
}

TEST_F(GemmRefusals, PackedWeights) {
  const PackedWeight packed = pack_weight(w);
  auto* bytes = reinterpret_cast<std::uint8_t*>(codes.data());
  expect_refusal([&] { unpack_weight(packed, nullptr, 96); }, "unpack_weight", "dst null",
                 "(4, 96) of e4m3fn");
  expect_refusal([&] { unpack_weight(packed, bytes, 95); }, "unpack_weight", "stride 95",
                 "(4, 96)");
  w.matrix.format = Format::bf16;
  const PackedWeight wide = pack_weight(w);
  expect_refusal([&] { unpack_weight(wide, bytes + 1, 96); }, "unpack_weight", "misaligned dst",
                 "of bf16");
  const PackedWeight empty{Format::e4m3fn, 4, 96, {}, {.data = {1.0f}}};  // as after a move
  expect_refusal([&] { gemm(a, empty, c); }, "gemm", "w with 0 bytes", "as pack_weight makes");
  expect_refusal([&] { unpack_weight(empty, bytes, 96); }, "unpack_weight", "w with 0 bytes",
                 "as pack_weight makes");
}

TEST_F(GemmRefusals, ContextsWithoutAPool) {
  const Context none{};
  GemmOptions options;
  options.context = &none;
  const PackedWeight packed = pack_weight(w);
  expect_refusal([&] { gemm(a, w, c, options); }, "gemm", "pool null", "a pool");
  expect_refusal([&] { pack_weight(w, none); }, "pack_weight", "pool null", "a pool");
  expect_refusal([&] { unpack_weight(packed, codes.data(), 96, none); }, "unpack_weight",
                 "pool null", "a pool");
}

TEST_F(GemmRefusals, NothingToDoIsDone) {
  const Operand none{{Format::e4m3fn, nullptr, 0, 96, 0}, {}, false};
  const PackedWeight packed = pack_weight(none);
  gemm(none, w, {Format::f32, nullptr, 0});
  gemm(none, pack_weight(w), {Format::f32, nullptr, 0});
  gemm(a, none, {Format::bf16, nullptr, 0});
  gemm(a, packed, {Format::f32, nullptr, 0});
  unpack_weight(packed, nullptr, 0);
  EXPECT_EQ(packed.n, 0u);
  // One row or column needs no stride.
  a.matrix.rows = 1;
  w.matrix.rows = 1;
  a.matrix.stride = w.matrix.stride = c.stride = 0;
  gemm(a, w, c);
  EXPECT_EQ(out[0], 96.0f);
  EXPECT_EQ(out[1], 7.0f);
}

// Sizes and offsets that no memory has: refused, not wrapped around.
TEST(GemmRefusalsOf, SizesBeyondMemory) {
  constexpr std::size_t kMost = SIZE_MAX;
  std::vector<float> c(64), scale(8, 1.0f);
  std::vector<std::uint8_t> codes(4096, 0x38);
  const Operand w{{Format::e4m3fn, codes.data(), 4, 96, 96}, {}, false};
  const PackedWeight packed = pack_weight(w);
  const Output output{Format::f32, c.data(), 4};
  struct Sizes {
    std::size_t rows, cols, stride;
    bool transposed;
  };
  for (const auto& [rows, cols, stride, transposed] :
       {Sizes{kMost, 96, 96, false}, Sizes{std::size_t{1} << 57, 128, 128, false},
        Sizes{1, kMost, kMost, false}, Sizes{1, std::size_t{1} << 61, 0, false},
        Sizes{2, 96, kMost, false}, Sizes{4, kMost, 4, true}, Sizes{4, 2, kMost, true}}) {
    const Operand big{{Format::e4m3fn, codes.data(), rows, cols, stride}, {}, transposed};
    EXPECT_THROW(pack_weight(big), ContractError) << rows << " x " << cols;
    EXPECT_THROW(gemm(big, big, output), ContractError) << rows << " x " << cols;
    EXPECT_THROW(gemm(big, packed, output), ContractError) << rows << " x " << cols;
  }
  EXPECT_THROW(gemm(w, packed, {Format::f32, c.data(), kMost}), ContractError);
  Operand scaled = w;
  scaled.scale = {scale.data(), kMost, {1, 96}, Format::f32};
  EXPECT_THROW(gemm(scaled, packed, output), ContractError);
  scaled.scale = {scale.data(), 0, {1, kMost}, Format::f32};  // a scale per row, none apart
  EXPECT_THROW(gemm(scaled, packed, output), ContractError);
  EXPECT_THROW(AlignedBytes{kMost}, std::bad_alloc);
}

TEST(GemmRefusalsOf, PackedWeightsThatAreNotWhole) {
  std::vector<float> c(64);
  std::vector<std::uint8_t> codes(4096, 0x38);
  const Operand a{{Format::e4m3fn, codes.data(), 2, 96, 96}, {}, false};
  const Operand w{{Format::e4m3fn, codes.data(), 4, 96, 96}, {}, false};
  const auto refused = [&](auto&& change) {
    PackedWeight packed = pack_weight(w);
    change(packed);
    EXPECT_THROW(gemm(a, packed, {Format::f32, c.data(), 4}), ContractError);
    EXPECT_THROW(unpack_weight(packed, codes.data(), 96), ContractError);
  };
  PackedWeight taken = pack_weight(w);
  refused([&](PackedWeight& p) { taken = std::move(p); });
  EXPECT_EQ(taken.bytes.size(), 32u * 96);
  refused([](PackedWeight& p) { p.format = Format::f32; });
  refused([](PackedWeight& p) { p.format = Format::f16; });
  refused([](PackedWeight& p) { p.n = 33; });
  refused([](PackedWeight& p) { p.k = 0; });
  refused([](PackedWeight& p) { p.scale.data.clear(); });
  refused([](PackedWeight& p) { p.scale.lanes = true; });
}

// A weight whose rows are left where they are.
TEST_F(GemmRefusals, UnpackedWeights) {
  const auto refused_rows = [&](const Change& change, const std::string& given) {
    Operand changed = w;
    change(changed);
    expect_refusal([&] { unpacked_weight(changed); }, "unpacked_weight", given, "contiguous rows");
  };
  refused_rows([](Operand& o) { o.transposed = true; }, "(4, 96) transposed");
  refused_rows([](Operand& o) { o.matrix.stride = 97; }, "(4, 96) with stride 97");
  refused_rows([](Operand& o) { o.matrix.rows = 0; }, "(0, 96)");
  Operand misaligned = w;
  misaligned.matrix = {Format::bf16, reinterpret_cast<const std::uint8_t*>(codes.data()) + 1, 4, 9,
                       9};
  expect_refusal([&] { unpacked_weight(misaligned); }, "unpacked_weight",
                 "w with misaligned bf16 elements", "aligned to 2 bytes");
  const PackedWeight left = unpacked_weight(w);
  EXPECT_EQ(element_bytes(left).data(), reinterpret_cast<const std::uint8_t*>(codes.data()));
  EXPECT_EQ(weight_bytes(left), 4 * 96 + sizeof(float));
  std::vector<std::uint8_t> back(4 * 96);
  expect_refusal([&] { unpack_weight(left, back.data(), 96); }, "unpack_weight",
                 "a weight that is not packed", "a packed one");
}

}  // namespace
}  // namespace octavo::ops::testing
