#include "tests/support/broken.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::StartsWith;

}  // namespace

std::string length_bytes(std::uint64_t length) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return text;
}

std::string tensor_file_text(std::string_view header, std::string_view data) {
  return length_bytes(header.size()).append(header).append(data);
}

std::string header_entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::string_view offsets) {
  std::string text = "\"";
  text.append(name).append("\":{\"dtype\":\"").append(dtype).append("\",\"shape\":");
  return text.append(shape).append(",\"data_offsets\":").append(offsets).append("}");
}

std::string tensor_file_text(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const Json offsets = {data.size(), data.size() + tensor.bytes.size()};
    if (header.size() > 1) header += ",";
    header += header_entry(name, tensor.dtype, Json(tensor.shape).dump(), offsets.dump());
    data.append(tensor.bytes.begin(), tensor.bytes.end());
  }
  return tensor_file_text(header + "}", data);
}

Tensors raw_tensors(const fs::path& path) {
  const std::string text = read_string(path);
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text.at(i));
  Tensors tensors;
  const Json header = Json::parse(text.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::uint64_t begin = entry.at("data_offsets").at(0);
    const std::uint64_t end = entry.at("data_offsets").at(1);
    const std::string bytes = text.substr(8 + length + begin, end - begin);
    tensors[name] = {entry.at("dtype"), entry.at("shape"), Bytes(bytes.begin(), bytes.end())};
  }
  return tensors;
}

Json verify_report(const fs::path& path, int status, const std::vector<std::string>& options,
                   std::string_view before) {
  std::vector<std::string> arguments = {"verify", path.string(), "--json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome run = run_octavo(arguments, before);
  EXPECT_EQ(run.status, status) << run.out << run.err;
  EXPECT_EQ(run.err, "");
  const Json report = Json::parse(run.out, nullptr, false);
  EXPECT_FALSE(report.is_discarded()) << run.out;
  if (report.is_discarded()) return {};
  EXPECT_EQ(report.at("ok"), status == 0);
  return report;
}

std::vector<std::string> codes_of(const Json& defects) {
  std::vector<std::string> codes;
  for (const Json& defect : defects) codes.push_back(defect.at("code"));
  return codes;
}

Json expect_refused(const fs::path& path, std::string_view code,
                    const std::vector<std::string>& options, std::string_view before) {
  const fs::path around = fs::is_directory(path) ? path : path.parent_path();
  const auto state = state_of(around);
  const Json report = verify_report(path, 3, options, before);
  if (!report.is_object() || report.at("defects").empty()) {
    ADD_FAILURE() << "no defect found, not even " << code;
    return report;
  }
  const Json& first = report.at("defects").at(0);
  EXPECT_EQ(first.at("code"), code);
  const std::string message = first.at("message");
  EXPECT_THAT(message, StartsWith(first.at("file").get<std::string>()));
  const TempDir output;
  for (const char* command : {"inspect", "quantize", "dequantize"}) {
    std::vector<std::string> arguments = {command, path.string()};
    if (command != std::string_view("inspect")) arguments.push_back((output / "out").string());
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome run = run_octavo(arguments, before);
    EXPECT_EQ(run.status, 1) << command << run.err;
    EXPECT_EQ(only_line(run), message) << command;
    EXPECT_EQ(run.out, "") << command;
  }
  EXPECT_FALSE(fs::exists(output / "out"));
  EXPECT_EQ(state_of(around), state);
  return report;
}

std::map<std::string, std::string> state_of(const fs::path& directory) {
  constexpr std::uint64_t kSmall = 1 << 20;
  std::map<std::string, std::string> state;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    std::string& words = state[entry.path().lexically_relative(directory).string()];
    if (entry.is_symlink()) words = "-> " + fs::read_symlink(entry.path()).string();
    if (!entry.is_regular_file()) continue;
    const auto time = entry.last_write_time().time_since_epoch().count();
    words += std::to_string(entry.file_size()) + " bytes, " + std::to_string(time) + "\n";
    if (entry.file_size() <= kSmall) words += read_string(entry.path());
  }
  return state;
}

}  // namespace octavo::tests
