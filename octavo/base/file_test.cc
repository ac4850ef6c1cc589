#include "octavo/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

bool device_takes_nothing = false;
}  // namespace

// In the place of the C library's, which no ordinary device makes return 0.
extern "C" ssize_t pwrite(int descriptor, const void* from, size_t bytes, off_t offset) {
  if (device_takes_nothing) return 0;
  return syscall(SYS_pwrite64, descriptor, from, bytes, offset);
}

namespace octavo {
namespace {

Result<void> copy_regular_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  OCTAVO_CHECK(copy_to_partial(from, to));
  return publish(to);
}

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "octavo_file_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
    return directory_ / name;
  }
  static std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static Result<std::string> read(const File& file, std::uint64_t offset, std::size_t bytes) {
    std::string text(bytes, '?');
    OCTAVO_CHECK(file.read_at(offset, std::as_writable_bytes(std::span(text))));
    return text;
  }

  fs::path directory_;
};

TEST_F(FileTest, ReadsAtAnOffset) {
  const Result<File> file = File::open(write("a", "0123456789"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(file->path(), directory_ / "a");
  EXPECT_EQ(read(*file, 3, 4), "3456");
  EXPECT_EQ(read(*file, 0, 10), "0123456789");
  EXPECT_EQ(read(*file, 10, 0), "");
}

TEST_F(FileTest, ReadingBeyondTheEndIsAnError) {
  const Result<File> file = File::open(write("a", "0123456789"));
  ASSERT_TRUE(file);
  for (const auto& [offset, bytes] : {std::pair{0u, 11u}, {9u, 2u}, {10u, 1u}, {1000u, 1u}}) {
    const Result<std::string> text = read(*file, offset, bytes);
    ASSERT_FALSE(text) << offset << " " << bytes;
    EXPECT_EQ(text.error().code, ErrorCode::bad_file);
    EXPECT_THAT(text.error().message, HasSubstr((directory_ / "a").string()));
    EXPECT_THAT(text.error().message, HasSubstr("truncated"));
  }
}

TEST_F(FileTest, AFileThatShrinksIsAnError) {
  const fs::path path = write("a", std::string(100'000, 'x'));
  const Result<File> file = File::open(path);
  ASSERT_TRUE(file);
  fs::resize_file(path, 99'999);
  const Result<std::string> text = read(*file, 0, 100'000);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::bad_file);
  EXPECT_THAT(text.error().message, HasSubstr("99999 are there"));
}

TEST_F(FileTest, WhatIsNoRegularFileIsRefused) {
  const Result<File> none = File::open(directory_ / "none");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::io);
  EXPECT_THAT(none.error().message, HasSubstr((directory_ / "none").string()));
  EXPECT_FALSE(File::open(directory_));
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(File::open(directory_ / "pipe")) << "and it is not waited for";
}

TEST_F(FileTest, WritesAtAnyOffset) {
  const Result<File> file = File::create(directory_ / "a");
  ASSERT_TRUE(file);
  const std::string tail = "tail";
  const std::string head = "head";
  ASSERT_TRUE(file->write_at(6, std::as_bytes(std::span(tail))));
  ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span(head))));
  ASSERT_TRUE(file->sync());
  EXPECT_EQ(content(directory_ / "a"), std::string("head\0\0tail", 10));
  EXPECT_EQ(read(*file, 6, 4), "tail") << "created files can be read";
}

TEST_F(FileTest, AWriteThatTakesNothingIsAnError) {
  const Result<File> file = File::create(directory_ / "a");
  ASSERT_TRUE(file);
  const std::string text = "text";
  device_takes_nothing = true;
  const Result<void> written = file->write_at(6, std::as_bytes(std::span(text)));
  const Result<void> nothing = file->write_at(6, {});
  device_takes_nothing = false;
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::io);
  EXPECT_THAT(written.error().message, HasSubstr((directory_ / "a").string()));
  EXPECT_TRUE(nothing);
}

TEST_F(FileTest, CreateReplacesALinkAndLeavesItsTarget) {
  const fs::path target = write("target", "precious");
  fs::create_symlink(target, directory_ / "link");
  fs::create_hard_link(target, directory_ / "hard");
  for (const char* name : {"link", "hard"}) {
    const Result<File> file = File::create(directory_ / name);
    ASSERT_TRUE(file);
    const std::string text = "new";
    ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span(text))));
    EXPECT_FALSE(fs::is_symlink(directory_ / name));
    EXPECT_EQ(content(directory_ / name), "new");
    EXPECT_EQ(content(target), "precious") << name;
  }
}

TEST_F(FileTest, CreateReplacesALongerFile) {
  const fs::path path = write("a", "something long");
  {
    ASSERT_TRUE(File::create(path));
  }
  EXPECT_EQ(fs::file_size(path), 0u);
}

TEST_F(FileTest, CreateDoesNotReplaceADirectory) {
  fs::create_directory(directory_ / "d");
  const Result<File> file = File::create(directory_ / "d");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::io);
  EXPECT_TRUE(fs::is_directory(directory_ / "d"));
  EXPECT_FALSE(File::create(directory_ / "none" / "a"));
}

TEST_F(FileTest, MovedFilesStayOpen) {
  Result<File> first = File::open(write("a", "aaa"));
  Result<File> second = File::open(write("b", "bbb"));
  ASSERT_TRUE(first && second);
  File moved = *std::move(first);
  EXPECT_EQ(read(moved, 0, 3), "aaa");
  moved = *std::move(second);
  EXPECT_EQ(read(moved, 0, 3), "bbb");
  EXPECT_EQ(moved.path(), directory_ / "b");
}

TEST_F(FileTest, PartialNamesAreHiddenSiblings) {
  const fs::path partial = partial_path(directory_ / "model.safetensors");
  EXPECT_EQ(partial.parent_path(), directory_);
  EXPECT_NE(partial.extension(), ".safetensors") << "a reader would take it for a shard";
  EXPECT_EQ(partial.filename().string().front(), '.');
  EXPECT_NE(partial_path(directory_ / "a.json"), partial_path(directory_ / "b.json"));
  EXPECT_EQ(partial_path("a").parent_path(), "");
}

TEST_F(FileTest, PartialNamesAreKnownAgain) {
  for (const char* name : {"model.safetensors", "a", ".hidden"})
    EXPECT_TRUE(is_partial(partial_path(directory_ / name).filename().string())) << name;
  for (const char* name : {"notes.partial", ".partial", "..partial", ".a.partial2", ".a", ""})
    EXPECT_FALSE(is_partial(name)) << name;
}

TEST_F(FileTest, PublishGivesTheFinalName) {
  const fs::path path = write("a", "old");
  std::ofstream(partial_path(path)) << "new";
  EXPECT_EQ(content(path), "old");
  ASSERT_TRUE(publish(path));
  EXPECT_EQ(content(path), "new");
  EXPECT_FALSE(fs::exists(partial_path(path)));

  const Result<void> again = publish(path);
  ASSERT_FALSE(again) << "there is nothing to publish";
  EXPECT_EQ(again.error().code, ErrorCode::io);
  EXPECT_EQ(content(path), "new");
}

TEST_F(FileTest, WriteText) {
  const fs::path path = write("a", "a longer old text");
  ASSERT_TRUE(write_text(path, std::string_view("one\0two\r\n", 9)));
  EXPECT_EQ(content(path), std::string("one\0two\r\n", 9));
  EXPECT_EQ(read_text(path), content(path));
  ASSERT_TRUE(write_text(path, ""));
  EXPECT_EQ(fs::file_size(path), 0u);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1) << "a partial file is left";
}

TEST_F(FileTest, WriteTextThatFailsLeavesTheOldFile) {
  const fs::path path = write("a", "old");
  fs::create_directory(partial_path(path));  // the partial file cannot be created
  EXPECT_FALSE(write_text(path, "new"));
  EXPECT_EQ(content(path), "old");
}

TEST_F(FileTest, WriteTextThatFailsLeavesNoPartialFile) {
  const fs::path path = directory_ / "a";
  fs::create_directory(path);  // the partial file cannot get this name
  EXPECT_FALSE(write_text(path, "new"));
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_FALSE(fs::exists(partial_path(path)));

  device_takes_nothing = true;
  const Result<void> full = write_text(directory_ / "b", "new");
  device_takes_nothing = false;
  EXPECT_FALSE(full);
  EXPECT_FALSE(fs::exists(directory_ / "b"));
  EXPECT_FALSE(fs::exists(partial_path(directory_ / "b")));
}

TEST_F(FileTest, ReadTextIsBounded) {
  const fs::path path = write("a", "0123456789");
  EXPECT_EQ(read_text(path, 10), "0123456789");
  const Result<std::string> text = read_text(path, 9);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::bad_file);
}

TEST_F(FileTest, CopyIsByteForByte) {
  std::string text((9 << 20) + 123, '\0');  // more than two of its buffers, and a rest
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  const fs::path from = write("from", text);
  ASSERT_TRUE(copy_regular_file(from, directory_ / "to"));
  EXPECT_EQ(content(directory_ / "to"), text);
  ASSERT_TRUE(copy_regular_file(write("empty", ""), directory_ / "to"));
  EXPECT_EQ(fs::file_size(directory_ / "to"), 0u);
  EXPECT_FALSE(copy_regular_file(directory_ / "none", directory_ / "to"));
  EXPECT_FALSE(copy_regular_file(directory_, directory_ / "to"));
}

TEST_F(FileTest, CopyKeepsTheExecutableBitAndMakesWritable) {
  const fs::path script = write("script", "#!/bin/sh\n");
  fs::permissions(script, fs::perms::owner_read | fs::perms::owner_exec);
  ASSERT_TRUE(copy_regular_file(script, directory_ / "copy"));
  const fs::perms perms = fs::status(directory_ / "copy").permissions();
  EXPECT_EQ(perms & fs::perms::owner_all, fs::perms::owner_all);
}

TEST_F(FileTest, StampsTellStatesApart) {
  const fs::path path = write("a", "one");
  const FileStamp before = stamp_of(path).value();
  EXPECT_EQ(before.size, 3u);
  EXPECT_EQ(File::open(path)->stamp().value(), before);
  const timespec times[] = {{0, UTIME_OMIT}, {1, 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  const FileStamp after = stamp_of(path).value();
  EXPECT_EQ(after.mtime_ns, 1'000'000'005);
  EXPECT_NE(after.ctime_ns, 1'000'000'005) << "it cannot be set";
  EXPECT_THAT(stamp_of(directory_ / "none").error().message, HasSubstr("none"));
}

TEST_F(FileTest, DirectoriesAreMadeWithAllThatLeadToThem) {
  EXPECT_TRUE(make_directories(directory_ / "a" / "b/").value());
  EXPECT_TRUE(fs::is_directory(directory_ / "a" / "b"));
  EXPECT_FALSE(make_directories(directory_ / "a" / "b").value());
  EXPECT_FALSE(make_directories("").value());
  EXPECT_TRUE(make_directories(directory_ / "new" / ".." / "c").value());
  EXPECT_TRUE(fs::is_directory(directory_ / "c"));
  write("file", "x");
  EXPECT_EQ(make_directories(directory_ / "file" / "d").error().code, ErrorCode::io);
}

TEST_F(FileTest, OneLockForADirectory) {
  {
    const Result<DirectoryLock> first = DirectoryLock::take(directory_);
    ASSERT_TRUE(first);
    EXPECT_THAT(DirectoryLock::take(directory_).error().message, HasSubstr("another run"));
  }
  EXPECT_TRUE(DirectoryLock::take(directory_));
}

TEST_F(FileTest, SpaceIsThatOfTheNearestDirectory) {
  const std::uint64_t space = available_bytes(directory_).value();
  EXPECT_GT(space, 0u);
  EXPECT_TRUE(available_bytes(directory_ / "not" / "there"));
  EXPECT_EQ(allocated_bytes(directory_ / "none"), 0u);
  const fs::path path = write("a", std::string(100'000, 'x'));
  ASSERT_TRUE(File::open(path)->sync());
  EXPECT_GE(allocated_bytes(path), 100'000u);
}

}  // namespace
}  // namespace octavo
