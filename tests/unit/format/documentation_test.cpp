// The worked examples of FORMAT.md are correct: their bytes can be decoded, and encoded to the same bytes.
#include <map>
#include <sstream>

#include "format/blocks.hpp"
#include "format/crc32c.hpp"
#include "format/environment.hpp"
#include "format/manifest.hpp"
#include "format/run_log.hpp"
#include "helpers.hpp"

namespace cairn::format::testing {
namespace {

/// Text of the fenced block that follows the line `<!-- example: name -->`.
std::string fenced(const std::string& name) {
  const std::string document = read_file(CAIRN_FORMAT_DOCUMENT);
  const std::size_t mark = document.find("<!-- example: " + name + " -->");
  if (mark == std::string::npos) throw std::runtime_error("FORMAT.md has no example " + name);
  const std::size_t open = document.find('\n', document.find("```", mark)) + 1;
  return document.substr(open, document.find("```", open) - open);
}

/// Bytes of a hex dump: "00000010  68 65 ...  |he...|".
base::Bytes bytes_of(const std::string& dump) {
  base::Bytes out;
  std::istringstream lines(dump);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('|')));
    std::string word;
    words >> word;
    EXPECT_EQ(std::stoul(word, nullptr, 16), out.size()) << line;
    while (words >> word) out.push_back(static_cast<std::byte>(std::stoul(word, nullptr, 16)));
  }
  return out;
}

std::string text_of(const base::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

TEST(FormatDocument, ShowsAValidDataFile) {
  const std::string file = text_of(bytes_of(fenced("data file")));
  ASSERT_EQ(file.size(), 212u);
  const auto header = read_safetensors(file, "FORMAT.md");
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "weight");
  EXPECT_EQ(header.tensors[1].name, "bias");
  const std::vector<Tensor> tensors = {{"bias", DType::kBF16, {2}}, {"weight", DType::kF32, {2, 2}}};
  const auto encoded = encode_header(tensors, header.metadata, 64);
  EXPECT_EQ(encoded.bytes, file.substr(0, header.data_start));
  EXPECT_EQ(encoded.bytes.size() + encoded.data_bytes, file.size());
  const float expected[] = {1, 2, 3, 4};
  EXPECT_EQ(std::memcmp(file.data() + header.data_start, expected, sizeof expected), 0);
}

TEST(FormatDocument, ShowsTheBlocksAndTheManifestOfThatFile) {
  const base::Bytes file = bytes_of(fenced("data file"));
  const base::Bytes blocks = bytes_of(fenced("cairn.blocks"));
  const BlockTable table = decode_blocks(blocks, "FORMAT.md");
  ASSERT_EQ(table.files.size(), 1u);
  EXPECT_EQ(table.files[0].name, "model.safetensors");
  ASSERT_EQ(table.files[0].crcs.size(), 4u);
  EXPECT_EQ(encode_blocks(table), blocks);
  const std::uint64_t size = file.size();
  BlockAccumulator accumulator(std::span(&size, 1), table.block_bytes);
  accumulator.add(0, 0, file);
  EXPECT_EQ(encode_blocks(accumulator.finish(std::vector<std::string>{"model.safetensors"})), blocks);

  const std::string text = fenced("cairn.json");
  const Manifest manifest = parse_manifest(text, "FORMAT.md");
  EXPECT_EQ(encode_manifest(manifest), text);
  EXPECT_EQ(manifest.blocks_crc32c, crc32c(blocks));
  ASSERT_EQ(manifest.data_files.size(), 1u);
  EXPECT_EQ(manifest.data_files[0].crc32c, crc32c(file));
  EXPECT_EQ(manifest.data_files[0].crc32c, file_digest(table.files[0], table.block_bytes));
  EXPECT_EQ(manifest.data_files[0].size_bytes, file.size());
  EXPECT_EQ(manifest.block_bytes, table.block_bytes);
}

TEST(FormatDocument, ShowsAnEnvironment) {
  const std::string text = fenced("cairn.environment.json");
  EXPECT_EQ(encode_environment(parse_environment(text, "FORMAT.md")), text);
}

TEST(FormatDocument, ShowsLinesOfTheLogOfARoot) {
  const std::string text = fenced("cairn.log.jsonl");
  const RunLog log = parse_run_log(text);
  ASSERT_EQ(log.sums.size(), 1u);
  ASSERT_EQ(log.calls.size(), 1u);
  EXPECT_EQ(encode_log_line(log.sums[0]) + "\n" + encode_log_line(log.calls[0]) + "\n", text);
}

}  // namespace
}  // namespace cairn::format::testing
