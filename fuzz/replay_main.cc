// Runs a target on every file of a directory: the corpus as an ordinary test, with any compiler.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    inputs.push_back(entry.path());
  std::ranges::sort(inputs);
  if (inputs.empty()) {
    std::fprintf(stderr, "%s: no inputs\n", argv[1]);
    return 1;
  }
  for (const std::filesystem::path& input : inputs) {
    std::printf("%s\n", input.filename().c_str());
    std::fflush(stdout);  // the last name printed is the one that failed
    std::ifstream file(input, std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(file)), {});
    // A copy of exactly this size, so that address sanitizer sees a read beyond it.
    const std::vector<std::uint8_t> bytes(content.begin(), content.end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu inputs\n", inputs.size());
  return 0;
}
