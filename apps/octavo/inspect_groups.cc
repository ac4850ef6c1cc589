#include "inspect_groups.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>

#include "command.h"

namespace octavo::app {
namespace {

constexpr char kNumber = '\x01';  // where a number stood; printable names hold no such character

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Numbers in names compare as numbers.
bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  const auto number_end = [&](std::string_view text, std::size_t at) {
    while (at < text.size() && is_digit(text[at])) ++at;
    return at;
  };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = a.substr(i, number_end(a, i) - i);
      const std::string_view y = b.substr(j, number_end(b, j) - j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i += x.size();
      j += y.size();
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

// "model.layers.11.mlp.experts.3.w1.weight" -> "model.layers.{}.mlp.experts.{}.w1.weight" and
// 11, 3.
std::string generalize(std::string_view name, std::vector<std::uint64_t>& numbers) {
  std::string pattern;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    const std::string_view segment = name.substr(at, dot - at);
    if (!segment.empty() && segment.size() < 10 && std::ranges::all_of(segment, is_digit)) {
      numbers.push_back(std::stoull(std::string(segment)));
      pattern += kNumber;
    } else {
      pattern += segment;
    }
    if (dot < name.size()) pattern += '.';
    at = dot + 1;
  }
  return pattern;
}

// "model.layers.{0..29}." of a row's name: its module that repeats; empty: none.
std::string_view repeated_prefix(std::string_view name) {
  const std::size_t end = name.find("}.");
  return name.substr(0, end == name.npos ? 0 : end + 2);
}

}  // namespace

std::vector<NameGroup> group_names(const std::vector<std::string>& names,
                                   const std::vector<std::string>& keys, bool all) {
  struct Range {
    std::uint64_t least;
    std::uint64_t most;
  };
  std::vector<NameGroup> groups;
  std::vector<std::vector<Range>> ranges;
  std::map<std::string, std::size_t> by_key;
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, natural_less, [&](std::size_t i) { return std::string_view(names[i]); });
  for (const std::size_t i : order) {
    const std::string name = printable(names[i]);
    if (all) {
      groups.push_back({name, {i}});
      continue;
    }
    std::vector<std::uint64_t> numbers;
    const std::string pattern = generalize(name, numbers);
    const auto [found, added] = by_key.emplace(pattern + "\n" + keys[i], groups.size());
    if (added) {
      groups.push_back({pattern, {}});
      ranges.emplace_back();
      for (const std::uint64_t number : numbers) ranges.back().push_back({number, number});
    }
    groups[found->second].members.push_back(i);
    std::vector<Range>& own = ranges[found->second];
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      own[n].least = std::min(own[n].least, numbers[n]);
      own[n].most = std::max(own[n].most, numbers[n]);
    }
  }
  for (std::size_t g = 0; g < ranges.size(); ++g) {
    for (const Range& range : ranges[g]) {
      const std::string words = range.least == range.most
                                    ? fmt::format("{}", range.least)
                                    : fmt::format("{{{}..{}}}", range.least, range.most);
      groups[g].name.replace(groups[g].name.find(kNumber), 1, words);
    }
  }
  return groups;
}

void print_table(const std::vector<NameGroup>& groups, std::string_view name_header,
                 const std::vector<Column>& columns,
                 const std::vector<std::vector<std::string>>& cells) {
  struct Line {
    std::string_view above;
    std::string name;
  };
  std::vector<Line> lines;
  std::string_view prefix;
  std::size_t name_width = name_header.size();
  std::vector<std::size_t> widths;
  for (const Column& column : columns) widths.push_back(column.header.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string& name = groups[g].name;
    const std::string_view own = repeated_prefix(name);
    lines.push_back(
        {own == prefix ? "" : own, own.empty() ? name : "  " + name.substr(own.size())});
    prefix = own;
    name_width = std::max(name_width, lines.back().name.size());
    for (std::size_t c = 0; c < widths.size(); ++c)
      widths[c] = std::max(widths[c], cells[g][c].size());
  }
  const auto print = [&](std::string_view name, const auto& cell) {
    std::string line = fmt::format("{:<{}}", name, name_width);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      line += columns[c].right ? fmt::format("  {:>{}}", cell(c), widths[c])
                               : fmt::format("  {:<{}}", cell(c), widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    print_out("{}\n", line);
  };
  print(name_header, [&](std::size_t c) -> std::string_view { return columns[c].header; });
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (!lines[g].above.empty()) print_out("{}\n", lines[g].above);
    print(lines[g].name, [&](std::size_t c) -> std::string_view { return cells[g][c]; });
  }
}

}  // namespace octavo::app
