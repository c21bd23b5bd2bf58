// Staging files whose index is not as Cairn writes it, although its checksum is right.
#include <gtest/gtest.h>

#include "expect_error.hpp"
#include "hdf5/stage_file.hpp"
#include "hdf5/stage_objects.hpp"
#include "temp_dir.hpp"

namespace cairn::hdf5 {
namespace {

/// Replaces the index and its checksum.
void put_index(const std::filesystem::path& path, const std::string& index) {
  const LibraryLock lock;
  const Checker check(ErrorKind::kIo, path);
  const Handle file = check.handle(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, "opening");
  const Handle own = check.handle(H5Gopen2(file.get(), "cairn", H5P_DEFAULT), H5Gclose, "opening");
  check.done(H5Ldelete(own.get(), "index", H5P_DEFAULT), "deleting from");
  put_text_dataset(own.get(), "index", index, H5P_DEFAULT, check);
}

/// Gives a dataset another attribute "name".
void put_name(const std::filesystem::path& path, const std::string& link, const std::string& name) {
  const LibraryLock lock;
  const Checker check(ErrorKind::kIo, path);
  const Handle file = check.handle(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, "opening");
  const Handle dataset = check.handle(H5Dopen2(file.get(), link.c_str(), H5P_DEFAULT), H5Dclose, "opening");
  check.done(H5Adelete(dataset.get(), "name"), "deleting from");
  put_text(dataset.get(), "name", name, check);
}

TEST(StageIndex, EachDatasetHasItsOwnName) {
  const test::TempDir directory;
  const std::filesystem::path path = directory / "state.h5";
  StageContent content;
  content.manifest = "{}";
  for (const char* file : {"a.json", "b.json"}) content.carried[file] = base::Bytes(100, std::byte{'x'});
  content.tensors = {{"model", "a", DType::kBF16, {4, 5}, {}}, {"model", "b", DType::kBF16, {4, 5}, {}}};
  struct Case {
    std::string link;
    const char* name;
    const char* says;
  };
  for (const Case& c : {Case{"model/b", "a", "dataset 'model/b' says that it is tensor 'a'"},
                        Case{"cairn/files/b.json", "a.json", "'cairn/files/b.json' says that it is 'a.json'"}}) {
    std::filesystem::remove(path);
    write_skeleton(path, content);
    EXPECT_EQ(describe_stage(path).stored.tensors.size(), 2U);
    put_name(path, c.link, c.name);
    test::expect_error(ErrorKind::kFormat, [&] { describe_stage(path); }, {"state.h5", c.says});
  }
}

TEST(StageIndex, ListsEverythingOnce) {
  const test::TempDir directory;
  const std::filesystem::path path = directory / "state.h5";
  StageContent content;
  content.manifest = "{}";
  content.carried["config.json"] = base::Bytes(100, std::byte{'x'});
  content.tensors = {{"model", "a", DType::kBF16, {4, 5}, {}}, {"model", "b", DType::kBF16, {4, 5}, {}}};
  write_skeleton(path, content);
  const std::string file = "cairn/files/config.json\n";
  put_index(path, file + "model/a\nmodel/b\n");
  EXPECT_EQ(describe_stage(path).stored.tensors.size(), 2U);
  for (const std::string twice : {"model/a", "cairn/files/config.json"}) {
    put_index(path, file + "model/a\nmodel/b\n" + twice + "\n");
    test::expect_error(ErrorKind::kFormat, [&] { describe_stage(path); },
                       {"state.h5': its index lists '" + twice + "' twice"});
  }
}

}  // namespace
}  // namespace cairn::hdf5
