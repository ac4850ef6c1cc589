#include "octavo/autograd/einsum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>

#include "octavo/autograd/compute_internal.h"
#include "octavo/autograd/shape.h"

namespace octavo {
namespace {

// Axes by name: letters, and -1, -2, ... for those of an ellipsis from its last. kEllipsis stands
// for all of these until the operand's rank is known.
using Letters = std::vector<int>;
constexpr int kEllipsis = 0;

struct Equation {
  Letters lhs, rhs, result;
};

[[noreturn]] void refuse(std::string_view equation, const std::string& fault,
                         std::string_view expected) {
  throw ContractError(
      fmt::format("einsum: given \"{}\" {}, expected {}", equation, fault, expected));
}

std::string name_of(int letter) {
  return letter < 0 ? fmt::format("axis {} of \"...\"", letter)
                    : fmt::format("'{}'", static_cast<char>(letter));
}

bool has(const Letters& letters, int letter) {
  return std::ranges::find(letters, letter) != letters.end();
}

std::size_t axis_of(const Letters& letters, int letter) {
  return static_cast<std::size_t>(std::ranges::find(letters, letter) - letters.begin());
}

// The names between two offsets of the equation.
Letters parse_names(std::string_view equation, std::size_t begin, std::size_t end) {
  Letters names;
  for (std::size_t i = begin; i < end; ++i) {
    const char c = equation[i];
    if (c == ' ') continue;
    if (c == '.') {
      if (equation.substr(i, end - i).starts_with("...") && !has(names, kEllipsis)) {
        names.push_back(kEllipsis);
        i += 2;
        continue;
      }
      refuse(equation, fmt::format("with '.' at offset {}", i), "\"...\" once in an operand");
    }
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
      refuse(equation, fmt::format("with '{}' at offset {}", c, i),
             "letters, \"...\", ',' or \"->\"");
    }
    names.push_back(c);
  }
  return names;
}

// One name per axis.
Letters for_rank(std::string_view equation, const char* side, const Letters& names,
                 const Shape& shape) {
  const bool has_ellipsis = has(names, kEllipsis);
  const std::size_t named = names.size() - (has_ellipsis ? 1 : 0);
  if (named > shape.size() || (named < shape.size() && !has_ellipsis)) {
    refuse(equation, fmt::format("for {} {}", side, to_string(shape)),
           fmt::format("{}{} axes there", has_ellipsis ? "at least " : "", named));
  }
  Letters letters;
  for (const int name : names) {
    if (name != kEllipsis) {
      letters.push_back(name);
      continue;
    }
    for (int axis = static_cast<int>(shape.size() - named); axis > 0; --axis) {
      letters.push_back(-axis);
    }
  }
  return letters;
}

// The axes of both ellipses, from the first.
Letters ellipsis_axes(const Letters& lhs, const Letters& rhs) {
  int first = 0;
  for (const Letters* letters : {&lhs, &rhs}) {
    for (const int letter : *letters) first = std::min(first, letter);
  }
  Letters axes;
  for (; first < 0; ++first) axes.push_back(first);
  return axes;
}

Letters implicit_result(const Letters& lhs, const Letters& rhs) {
  std::map<int, int> counts;
  for (const int letter : lhs) ++counts[letter];
  for (const int letter : rhs) ++counts[letter];
  Letters result = ellipsis_axes(lhs, rhs);
  for (const auto& [letter, count] : counts) {
    if (letter > 0 && count == 1) result.push_back(letter);
  }
  return result;
}

Letters explicit_result(std::string_view equation, std::size_t begin, const Letters& lhs,
                        const Letters& rhs) {
  Letters result;
  for (const int name : parse_names(equation, begin, equation.size())) {
    if (name == kEllipsis) {
      for (const int axis : ellipsis_axes(lhs, rhs)) result.push_back(axis);
      continue;
    }
    if (has(result, name)) {
      refuse(equation, fmt::format("with {} twice in the result", name_of(name)), "it once");
    }
    if (!has(lhs, name) && !has(rhs, name)) {
      refuse(equation, fmt::format("with {} in the result", name_of(name)),
             "letters of the operands there");
    }
    result.push_back(name);
  }
  return result;
}

Equation parse(std::string_view equation, const Shape& lhs, const Shape& rhs) {
  const std::size_t arrow = equation.find("->");
  const std::string_view operands = equation.substr(0, arrow);
  const auto commas = std::ranges::count(operands, ',');
  if (commas != 1) {
    refuse(equation, fmt::format("of {} operand{}", commas + 1, commas == 0 ? "" : "s"), "two");
  }
  const std::size_t comma = operands.find(',');
  Equation result;
  result.lhs = for_rank(equation, "lhs", parse_names(equation, 0, comma), lhs);
  result.rhs = for_rank(equation, "rhs", parse_names(equation, comma + 1, operands.size()), rhs);
  result.result = arrow == std::string_view::npos
                      ? implicit_result(result.lhs, result.rhs)
                      : explicit_result(equation, arrow + 2, result.lhs, result.rhs);
  return result;
}

// The size of each letter. Sizes differ between operands if one of them is 1.
std::map<int, std::uint64_t> sizes_of(std::string_view equation, const Equation& names,
                                      const Shape& lhs, const Shape& rhs) {
  std::map<int, std::uint64_t> sizes;
  const auto add = [&](const Letters& letters, const Shape& shape) {
    std::map<int, std::uint64_t> own;
    for (std::size_t axis = 0; axis < letters.size(); ++axis) {
      const int letter = letters[axis];
      const auto [of_operand, is_first] = own.emplace(letter, shape[axis]);
      const auto [of_both, is_new] = sizes.emplace(letter, shape[axis]);
      const bool fits_other =
          of_both->second == shape[axis] || of_both->second == 1 || shape[axis] == 1;
      if (of_operand->second != shape[axis] || !fits_other) {
        refuse(equation, fmt::format("for lhs {} and rhs {}", to_string(lhs), to_string(rhs)),
               fmt::format("one size for {}", name_of(letter)));
      }
      if (of_both->second == 1) of_both->second = shape[axis];
    }
  };
  add(names.lhs, lhs);
  add(names.rhs, rhs);
  return sizes;
}

struct NamedOperand {
  Variable value;
  Letters letters;
};

// Without those of axes of size 1 that meet a larger one.
Letters squeezed(const Letters& letters, const Shape& shape,
                 const std::map<int, std::uint64_t>& sizes) {
  Letters result;
  for (std::size_t axis = 0; axis < letters.size(); ++axis) {
    if (shape[axis] == sizes.at(letters[axis])) result.push_back(letters[axis]);
  }
  return result;
}

// Without these axes.
NamedOperand squeezed(const NamedOperand& x, const std::map<int, std::uint64_t>& sizes) {
  Letters letters = squeezed(x.letters, x.value.shape(), sizes);
  if (letters.size() == x.letters.size()) return x;
  Shape shape;
  for (const int letter : letters) shape.push_back(sizes.at(letter));
  return {reshape(x.value, std::move(shape)), std::move(letters)};
}

// With each letter once.
NamedOperand without_repeats(NamedOperand x) {
  for (std::size_t axis = 0; axis < x.letters.size();) {
    const std::size_t first = axis_of(x.letters, x.letters[axis]);
    if (first == axis) {
      ++axis;
      continue;
    }
    x.value = diagonal(x.value, first, axis);
    x.letters.erase(x.letters.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  return x;
}

// Summed over what is in neither.
NamedOperand summed(const NamedOperand& x, const Letters& other, const Letters& result) {
  ops::Axes axes;
  Letters letters;
  for (std::size_t axis = 0; axis < x.letters.size(); ++axis) {
    const int letter = x.letters[axis];
    if (has(other, letter) || has(result, letter)) {
      letters.push_back(letter);
    } else {
      axes.push_back(axis);
    }
  }
  return {axes.empty() ? x.value : sum(x.value, axes), letters};
}

}  // namespace

Variable diagonal(const Variable& x, std::size_t axis, std::size_t other) {
  const Shape& from = x.shape();
  if (axis >= from.size() || other >= from.size() || axis == other || from[axis] != from[other]) {
    throw ContractError(
        fmt::format("diagonal: given axes {} and {} of {}, expected two of one size", axis, other,
                    to_string(from)));
  }
  Shape shape = from, steps(from.size(), 1);
  for (std::size_t i = from.size(); i-- > 1;) steps[i - 1] = steps[i] * from[i];
  steps[axis] += steps[other];
  for (Shape* of : {&shape, &steps}) of->erase(of->begin() + static_cast<std::ptrdiff_t>(other));
  // The element of x behind element i.
  const auto source = [shape, steps](std::size_t i) {
    std::size_t at = 0;
    for (std::size_t a = shape.size(); a-- > 0;) {
      at += i % shape[a] * steps[a];
      i /= shape[a];
    }
    return at;
  };
  Tensor value = compute(x.dtype(), shape, [&]<class T>(std::span<T> to) {
    const Values<T> values(x.value());
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = values[source(i)];
  });
  return record("diagonal", std::move(value), std::span(&x, 1),
                [from, source](const Tensor& g) -> std::vector<Cotangent> {
                  return {compute(g.dtype(), from, [&]<class T>(std::span<T> to) {
                    const Values<T> values(g);
                    std::ranges::fill(to, T(0));
                    for (std::size_t i = 0; i < values.size(); ++i) to[source(i)] = values[i];
                  })};
                });
}

EinsumShapes einsum_shapes(std::string_view equation, const Shape& lhs, const Shape& rhs) {
  const Equation names = parse(equation, lhs, rhs);
  const auto sizes = sizes_of(equation, names, lhs, rhs);
  EinsumShapes shapes;
  for (const int letter : names.result) {
    shapes.result.push_back(sizes.at(letter));
    const bool is_of_rhs = has(names.rhs, letter);
    shapes.result_of_rhs.push_back(is_of_rhs ? rhs[axis_of(names.rhs, letter)] : 1);
    if (is_of_rhs) shapes.rhs_in_result.push_back(shapes.result_of_rhs.back());
  }
  return shapes;
}

bool is_exchanged_by_jax(std::string_view equation, const Shape& lhs, const Shape& rhs) {
  const Equation names = parse(equation, lhs, rhs);
  const auto sizes = sizes_of(equation, names, lhs, rhs);
  const Letters a = squeezed(names.lhs, lhs, sizes), b = squeezed(names.rhs, rhs, sizes);
  Letters product;
  for (const int letter : names.result) {
    if (has(a, letter) && has(b, letter)) product.push_back(letter);
  }
  for (const auto& [own, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const int letter : *own) {
      const bool is_free = has(names.result, letter) && !has(*other, letter);
      if (is_free && !has(product, letter)) product.push_back(letter);
    }
  }
  return product != names.result;
}

Variable einsum(std::string_view equation, const Variable& lhs, const Variable& rhs,
                const DotGeneral& inner) {
  const Equation names = parse(equation, lhs.shape(), rhs.shape());
  const auto sizes = sizes_of(equation, names, lhs.shape(), rhs.shape());
  NamedOperand a = without_repeats(squeezed({lhs, names.lhs}, sizes));
  NamedOperand b = without_repeats(squeezed({rhs, names.rhs}, sizes));
  a = summed(a, b.letters, names.result);
  b = summed(b, a.letters, names.result);

  DotDimensionNumbers dims;
  Letters letters;  // of the product
  for (const int letter : names.result) {
    if (!has(a.letters, letter) || !has(b.letters, letter)) continue;
    dims.lhs_batch.push_back(axis_of(a.letters, letter));
    dims.rhs_batch.push_back(axis_of(b.letters, letter));
    letters.push_back(letter);
  }
  for (const int letter : a.letters) {
    if (!has(b.letters, letter)) letters.push_back(letter);
    if (!has(b.letters, letter) || has(names.result, letter)) continue;
    dims.lhs_contracting.push_back(axis_of(a.letters, letter));
    dims.rhs_contracting.push_back(axis_of(b.letters, letter));
  }
  for (const int letter : b.letters) {
    if (!has(a.letters, letter)) letters.push_back(letter);
  }

  const Variable product = inner(a.value, b.value, dims);
  if (letters == names.result) return product;
  ops::Axes order;
  for (const int letter : names.result) order.push_back(axis_of(letters, letter));
  return transpose(product, order);
}

Variable einsum(std::string_view equation, const Variable& lhs, const Variable& rhs) {
  return einsum(equation, lhs, rhs,
                [](const Variable& a, const Variable& b, const DotDimensionNumbers& dims) {
                  return dot_general(a, b, dims);
                });
}

}  // namespace octavo
