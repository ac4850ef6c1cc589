// How a comparison is printed.
#pragma once

#include <string>

#include "octavo/base/json.h"
#include "octavo/checkpoint/compare.h"

namespace octavo::app {

std::string format_words(const std::optional<StoredTensor>& tensor);  // "F8_E4M3 128x128"
std::string decibels(double snr_db);                                  // "31.5", "inf"
std::string number_words(double value);                               // "0.00123", "nan"
std::string worst_words(const WorstElement& worst);                   // "[3, 17]: 0.5 / 0.4375"

// Worst first; equal tensors share a line where their names differ in numbers alone. At most
// `lines` of those that are not equal, 0: every tensor, one line each.
void print_comparison(const Comparison& comparison, std::size_t lines);

OrderedJson comparison_json(const Comparison& comparison, const std::string& a,
                            const std::string& b, std::uint64_t differences);

}  // namespace octavo::app
