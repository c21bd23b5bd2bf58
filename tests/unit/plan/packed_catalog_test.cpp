// The packed catalog compared with its original; broken runs; and files made in parts compared with whole files.
#include "plan/catalog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "format/safetensors.hpp"
#include "layouts.hpp"
#include "plan/hf_layout.hpp"
#include "plan/stored_tensors.hpp"
#include "seeded.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;

/// A catalog of similar names with numbers of one to three digits, in up to four sections.
Catalog random_catalog(Seeded& random, std::uint64_t count) {
  static const char* const kSections[] = {"model", "optimizer", "master_weights", "ema"};
  static const char* const kParts[] = {"model.layers.", "experts.", "", "transformer/h.", "\u4e2d\u6587."};
  static const DType kTypes[] = {DType::kBF16, DType::kF32, DType::kF8E4M3, DType::kI64};
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<CatalogTensor> tensors;
  while (tensors.size() < count) {
    std::string name = kParts[random.between(0, 4)] + std::to_string(random.between(0, 300)) + "." +
                       kParts[random.between(0, 4)] + std::to_string(random.between(0, 12));
    CatalogTensor tensor{kSections[random.between(0, 3)], std::move(name), kTypes[random.between(0, 3)], {}};
    if (!random.one_in(3)) tensor.shape = plan_test::random_shape(random, 4, 40);
    if (seen.emplace(tensor.section, tensor.name).second) tensors.push_back(std::move(tensor));
  }
  return make_catalog(std::move(tensors));
}

/// The catalog in runs of random length, some of them empty.
std::vector<base::Bytes> runs_of(Seeded& random, const Catalog& catalog) {
  std::vector<base::Bytes> runs;
  CatalogPacker packer;
  for (const CatalogTensor& tensor : catalog.tensors) {
    while (random.one_in(100)) runs.push_back(packer.take());
    packer.add(tensor);
  }
  runs.push_back(packer.take());
  return runs;
}

TEST(PackedCatalog, GivesBackEveryTensorInOrder) {
  Seeded random("packed order");
  for (const std::uint64_t count : {0U, 1U, 2U, 63U, 64U, 65U, 1000U}) {
    const Catalog catalog = random_catalog(random, count);
    const PackedCatalog packed(runs_of(random, catalog));
    ASSERT_EQ(packed.size(), count) << Seeded::note();
    std::size_t compared = 0;
    for (PackedCatalog::Cursor cursor(packed, 0); cursor.next(); ++compared) {
      ASSERT_EQ(cursor.number(), compared);
      ASSERT_EQ(cursor.tensor(), catalog.tensors[compared]) << Seeded::note();
      if (cursor.same_type()) {
        ASSERT_EQ(catalog.tensors[compared].dtype, catalog.tensors[compared - 1].dtype);
        ASSERT_EQ(catalog.tensors[compared].shape, catalog.tensors[compared - 1].shape);
      }
    }
    EXPECT_EQ(compared, count);
    EXPECT_EQ(packed.unpacked().tensors, catalog.tensors);
  }
}

TEST(PackedCatalog, FindsByNameAndByNumber) {
  Seeded random("packed find");
  const Catalog catalog = random_catalog(random, 700);
  const PackedCatalog packed(runs_of(random, catalog));
  for (std::uint32_t i = 0; i < catalog.tensors.size(); ++i) {
    const CatalogTensor& tensor = catalog.tensors[i];
    ASSERT_EQ(packed.find(tensor.section, tensor.name), i) << tensor.name << ' ' << Seeded::note();
    ASSERT_EQ(packed.at(i), tensor);
    EXPECT_EQ(packed.find(tensor.section, tensor.name + "x"), std::nullopt);
    EXPECT_EQ(packed.find("adapter", tensor.name), std::nullopt);
  }
  EXPECT_EQ(packed.find("", ""), std::nullopt);
  EXPECT_EQ(PackedCatalog().find("model", "w"), std::nullopt);
}

TEST(PackedCatalog, RefusesRunsThatAreBroken) {
  Seeded random("packed broken");
  const std::vector<base::Bytes> all = runs_of(random, random_catalog(random, 200));
  // The largest run, because a run without tensors has nothing that could be out of order.
  const base::Bytes good =
      *std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const auto read_all = [](const std::vector<base::Bytes>& runs) {
    const PackedCatalog packed(runs);
    std::size_t read = 0;
    for (PackedCatalog::Cursor cursor(packed, 0); cursor.next();) read += cursor.tensor().name.size();
    return read;
  };
  EXPECT_THROW(read_all({good, good}), Error) << "out of order";
  for (std::size_t size = 1; size < good.size(); size += 7) {
    EXPECT_THROW(read_all({base::Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))}), Error)
        << size;
  }
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {  // damage is refused or harmless; no read leaves the run
    base::Bytes damaged = good;
    damaged[random.between(0, damaged.size() - 1)] = static_cast<std::byte>(random.between(0, 255));
    try {
      read_all({damaged});
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

TEST(HfLayout, PartsAreThoseOfTheWhole) {
  Seeded random("hf parts");
  int places = 0;
  for (int round = 0; round < 30; ++round) {
    const Catalog catalog = random_catalog(random, random.between(1, 300));
    LayoutOptions options;
    options.max_file_bytes = random.between(1, 200'000);  // some tensors are larger
    const FileLayout whole = lay_out_hf(catalog, options);
    const HfLayout files(PackedCatalog(runs_of(random, catalog)), options);
    ASSERT_EQ(files.files(), whole.files.size());
    std::vector<std::uint64_t> header_bytes;
    for (std::uint32_t f = 0; f < files.files(); ++f) {
      header_bytes.push_back(files.header_of(f).bytes.size());
      ASSERT_EQ(files.header_of(f).bytes, whole.files[f].header);
    }
    const FileLayout part = files.without_content(header_bytes);
    std::vector<std::uint32_t> some;
    for (std::uint32_t t = 0; t < catalog.tensors.size(); ++t) {
      if (random.one_in(3)) some.push_back(t);
    }
    const format::StoredCheckpoint found_places = files.places_of(part, some);
    ASSERT_EQ(found_places.tensors.size(), some.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      const format::StoredTensor& found = found_places.tensors[i];
      const format::StoredTensor& expected = whole.stored.tensors[some[i]];
      ASSERT_EQ(found.name, expected.name);
      ASSERT_EQ(found.shape, expected.shape);
      ASSERT_EQ(found.boxes.at(0).file, expected.boxes.at(0).file);
      ASSERT_EQ(found.boxes.at(0).offset_bytes, expected.boxes.at(0).offset_bytes) << Seeded::note();
      ASSERT_EQ(found.boxes.at(0).box, expected.boxes.at(0).box);
      ++places;
    }
    for (std::uint32_t f = 0; f < files.files(); ++f) {
      EXPECT_EQ(part.files[f].name, whole.files[f].name);
      EXPECT_EQ(part.files[f].size_bytes, whole.files[f].size_bytes);
      EXPECT_EQ(part.stored.files[f].size_bytes, whole.files[f].size_bytes);
    }
  }
  EXPECT_GT(places, 200);
}

TEST(HfLayout, RefusesUnknownPlacesAndOtherHeaderSizes) {
  const Catalog catalog = make_catalog({{"model", "a", DType::kF32, {4}}, {"model", "b", DType::kF32, {4}}});
  LayoutOptions options;
  options.max_file_bytes = 16;
  const HfLayout files(PackedCatalog(catalog), options);
  ASSERT_EQ(files.files(), 2U);
  EXPECT_THROW(static_cast<void>(files.without_content(std::vector<std::uint64_t>{4096})), Error);
  FileLayout layout = files.without_content(std::vector<std::uint64_t>{4096, 8192});
  layout.stored.tensors.resize(2);
  EXPECT_EQ(files.places_of(layout, std::vector<std::uint32_t>{0, 1}).tensors.size(), 2U);
  EXPECT_THROW(static_cast<void>(files.places_of(layout, std::vector<std::uint32_t>{2})), Error);
  EXPECT_THROW(static_cast<void>(files.places_of(layout, std::vector<std::uint32_t>{0, 0})), Error);
  EXPECT_THROW(files.add_header(layout, 1, files.header_of(1)), Error);  // 8192 bytes were agreed on
  EXPECT_THROW(files.add_file(layout, 1, files.header_of(1)), Error);    // 8192 bytes were agreed on
}

// Places of stored tensors: one after another, in other places, in parts.

std::vector<format::StoredTensor> random_stored(Seeded& random, std::uint64_t count) {
  std::vector<format::StoredTensor> out;
  std::uint64_t offset = 8;
  for (const CatalogTensor& tensor : random_catalog(random, count).tensors) {
    format::StoredTensor stored{tensor.section, tensor.name, tensor.dtype, tensor.shape, {}};
    const auto file = static_cast<std::uint32_t>(random.between(0, 2));
    const Box whole{std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape};
    if (random.one_in(5) && !tensor.shape.empty()) {
      for (std::uint32_t part = 0; part < 3; ++part) {
        Box box = whole;
        box.offset[0] = part * 7;
        stored.boxes.push_back({part, offset + part, box, random.between(0, 1) * 1000});
      }
    } else {
      stored.boxes.push_back({file, offset, whole});
    }
    offset = random.one_in(3) ? random.between(0, UINT64_MAX / 2)
                              : offset + format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
    out.push_back(std::move(stored));
  }
  return out;
}

bool is_same(const format::StoredTensor& a, const format::StoredTensor& b) {
  const auto same_box = [](const format::StoredBox& x, const format::StoredBox& y) {
    return x.file == y.file && x.offset_bytes == y.offset_bytes && x.box == y.box && x.row_elems == y.row_elems;
  };
  return a.section == b.section && a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
         std::ranges::equal(a.boxes, b.boxes, same_box);
}

TEST(StoredTensors, GiveBackEveryPlace) {
  Seeded random("packed places");
  for (const std::uint64_t count : {0U, 1U, 64U, 65U, 1000U}) {
    const std::vector<format::StoredTensor> tensors = random_stored(random, count);
    const base::Bytes run = StoredTensors(tensors).catalog().run();
    const PackedCheckpoint packed{{}, StoredTensors(PackedCatalog({&run, 1}))};
    ASSERT_EQ(packed.tensors.size(), count);
    std::size_t compared = 0;
    for (const format::StoredTensor& tensor : packed.tensors) ASSERT_TRUE(is_same(tensor, tensors[compared++]));
    ASSERT_EQ(compared, count);
    std::vector<std::uint32_t> numbers;
    for (std::uint64_t left = count; left > 0; --left) {
      numbers.push_back(static_cast<std::uint32_t>(random.between(0, count - 1)));
    }
    const format::StoredCheckpoint picked = packed.picked(numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_TRUE(is_same(picked.tensors[i], tensors[numbers[i]])) << Seeded::note();
    }
    EXPECT_THROW((void)packed.tensors.at(count), std::out_of_range);
  }
}

TEST(StoredTensors, AreFoundByName) {
  Seeded random("packed names");
  const std::vector<format::StoredTensor> tensors = random_stored(random, 500);
  const StoredTensors packed(tensors);
  for (const std::size_t wanted : {3U, 400U}) {
    std::vector<CatalogKey> keys;
    std::vector<std::optional<std::uint32_t>> expected;
    for (std::size_t i = 0; i < wanted; ++i) {
      const auto number = static_cast<std::uint32_t>(random.between(0, tensors.size() - 1));
      keys.push_back({tensors[number].section, tensors[number].name});
      expected.emplace_back(number);
      keys.push_back({random.one_in(2) ? "model" : "nowhere", "no such tensor"});
      expected.emplace_back(std::nullopt);
    }
    EXPECT_EQ(packed.catalog().find_all(keys), expected) << Seeded::note();
  }
}

TEST(MergeRuns, GivesWhatOnePackerGives) {
  Seeded random("merged runs");
  std::vector<format::StoredTensor> tensors = random_stored(random, 700);
  std::erase_if(tensors, [](const format::StoredTensor& tensor) { return tensor.boxes.size() != 1; });
  std::vector<std::vector<format::StoredTensor>> parts(4);
  for (const format::StoredTensor& tensor : tensors) parts[random.between(0, 2)].push_back(tensor);  // one stays empty
  std::vector<base::Bytes> runs;
  for (const auto& part : parts) runs.push_back(StoredTensors(part).catalog().run());
  EXPECT_EQ(merge_runs(runs), StoredTensors(tensors).catalog().run());
  runs.push_back(StoredTensors(std::vector{tensors[5]}).catalog().run());
  EXPECT_EQ(merge_runs(runs), std::nullopt);
}

}  // namespace
}  // namespace cairn::plan
