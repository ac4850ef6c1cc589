#include "octavo/checkpoint/defect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Row {
  std::string name;
  bool fetch_again;
  std::string meaning;
  bool operator==(const Row&) const = default;
  friend void PrintTo(const Row& row, std::ostream* out) {
    *out << row.name << (row.fetch_again ? " (fetch again): " : ": ") << row.meaning;
  }
};

// Rows "| `name` † | meaning |" of the section "## Defects" of docs/cli.md: defects, then notes.
std::pair<std::vector<Row>, std::vector<Row>> documented() {
  std::pair<std::vector<Row>, std::vector<Row>> rows;
  std::ifstream file(std::filesystem::path(OCTAVO_GOLDEN_DIR) / "../../docs/cli.md");
  bool inside = false;
  bool notes = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == "## Defects";
    if (line.starts_with("Notes do not")) notes = true;
    if (!inside || !line.starts_with("| `")) continue;
    const std::size_t end = line.find('`', 3);
    const std::size_t bar = line.find("| ", end);
    Row row{line.substr(3, end - 3), line.substr(end, bar - end).find("†") != line.npos,
            line.substr(bar + 2, line.rfind(" |") - bar - 2)};
    (notes ? rows.second : rows.first).push_back(std::move(row));
  }
  return rows;
}

TEST(Defect, TheManualListsEveryCodeOnceAndNoOther) {
  std::vector<Row> defects;
  std::vector<Row> notes;
  for (const DefectInfo& info : all_defects()) {
    (info.code < DefectCode::other_weights ? defects : notes)
        .push_back({std::string(info.name), info.fetch_again, std::string(info.meaning)});
  }
  const auto [documented_defects, documented_notes] = documented();
  EXPECT_EQ(documented_defects, defects);
  EXPECT_EQ(documented_notes, notes);
}

TEST(Defect, NamesAreWordsThatDiffer) {
  std::set<std::string_view> names;
  for (const DefectInfo& info : all_defects()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(info.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), info.name.npos)
        << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
    EXPECT_EQ(&defect_info(info.code), &info);
  }
}

TEST(Defect, MessagesAreOneLine) {
  const Defect defect = make_defect(DefectCode::index_path, "a\nb", "c\td", 7, "a\nb: c\td\x1b[0m");
  EXPECT_EQ(defect.message, "a\\x0Ab: c\\x09d\\x1B[0m");
  EXPECT_EQ(defect.file, "a\nb") << "as the system knows it";
  EXPECT_EQ(defect.tensor, "c\td");
  EXPECT_EQ(defect.offset, 7u);
  EXPECT_EQ(to_error(defect).code, ErrorCode::bad_file);
  EXPECT_EQ(to_error(defect).message, defect.message);
}

TEST(Defect, MessagesOfDamagedFilesSayWhatToDo) {
  EXPECT_EQ(make_defect(DefectCode::overlap, "f", "t", 7, "f: t").message,
            "f: t; fetch this file again");
  EXPECT_EQ(make_defect(DefectCode::unreadable, "f", "", {}, "f: denied").message, "f: denied");
}

TEST(Defect, MessagesEnd) {
  const Defect defect = make_defect(DefectCode::index_path, "f", std::string(1 << 20, 't'), {},
                                    "f: " + std::string(1 << 20, 't'));
  EXPECT_EQ(defect.message.size(), 8192u + 4);
  EXPECT_TRUE(defect.message.ends_with("t ..."));
  EXPECT_EQ(defect.tensor.size(), std::size_t{1} << 20);
}

TEST(Defect, FirstNames) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  const std::span all(names);
  EXPECT_EQ(first_names(all.first(0)), "");
  EXPECT_EQ(first_names(all.first(1)), "a");
  EXPECT_EQ(first_names(all.first(3)), "a, b, c");
  EXPECT_EQ(first_names(all), "a, b, c and 2 more");
}

}  // namespace
}  // namespace octavo
