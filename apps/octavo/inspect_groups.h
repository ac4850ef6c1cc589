// Tensors of repeated layers and experts as one row.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::app {

struct NameGroup {
  std::string name;                  // printable; numbers that vary are {first..last}
  std::vector<std::size_t> members;  // indices into the names that were given
};

// Names that differ in whole numbers alone and have the same key, in natural order: layer 2 before
// layer 10. `all`: each name stands for itself. keys: one for each name.
std::vector<NameGroup> group_names(const std::vector<std::string>& names,
                                   const std::vector<std::string>& keys, bool all);

struct Column {
  std::string header;
  bool right = false;  // numbers
};

// A row for each group, its name in front and cells[group][column]. Neighbours of one repeated
// module stand below its name, which keeps lines short.
void print_table(const std::vector<NameGroup>& groups, std::string_view name_header,
                 const std::vector<Column>& columns,
                 const std::vector<std::vector<std::string>>& cells);

}  // namespace octavo::app
