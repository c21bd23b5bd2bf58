#include "test_directory.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>

#include "base/bytes.hpp"
#include "environment.hpp"
#include "nlohmann/json.hpp"

namespace cairn::interop::test {
namespace {

constexpr const char* kPath = "/run/checkpoint-7";

format::SafetensorsHeader parse(const std::string& bytes, std::uint64_t data_bytes, const std::string& name) {
  const std::uint64_t file_bytes = bytes.size() + data_bytes;
  const auto prefix = base::as_bytes(bytes).first(std::min<std::size_t>(bytes.size(), 64));
  const std::uint64_t length = format::header_length(prefix, file_bytes, name);
  return format::parse_header(std::string_view(bytes).substr(format::kPrefixBytes, length), file_bytes, name);
}

/// The number of data bytes that a header describes, for test data that consist of headers only.
std::uint64_t data_bytes_of(const std::string& header) {
  std::uint64_t end = 0;
  const auto document = nlohmann::json::parse(header.substr(format::kPrefixBytes));
  for (const auto& item : document.items()) {
    if (item.key() != "__metadata__") end = std::max(end, item.value().at("data_offsets").at(1).get<std::uint64_t>());
  }
  return end;
}

}  // namespace

TestDirectory& TestDirectory::file(const std::string& name, const std::vector<Tensor>& tensors,
                                   const Metadata& metadata) {
  directory.path = kPath;
  const auto encoded = format::encode_header(tensors, metadata, 8);
  directory.safetensors[name] = parse(encoded.bytes, encoded.data_bytes, name);
  return *this;
}

TestDirectory& TestDirectory::file_of(const std::string& name, const std::vector<std::string>& tensors,
                                      const Metadata& metadata) {
  std::vector<Tensor> entries;
  for (const auto& tensor : tensors) entries.push_back({tensor, DType::kF32, {2, 3}});
  return file(name, entries, metadata);
}

TestDirectory& TestDirectory::shard(const std::string& name, const std::vector<Part>& parts, Metadata metadata) {
  std::vector<Tensor> entries;
  nlohmann::json info = nlohmann::json::object();
  for (const Part& part : parts) {
    entries.push_back({part.name, part.dtype, part.shape});
    info[part.name]["saved_offsets"] = part.offset;
  }
  metadata.emplace("DCP_SHARDING_INFO", info.dump());
  metadata.emplace("DCP_VERSION", "1.0");
  return file(name, entries, metadata);
}

TestDirectory& TestDirectory::index(const std::string& name, const std::map<std::string, std::string>& weight_map,
                                    std::uint64_t total_size, const std::string& extra) {
  const std::string map = weight_map.empty() ? "{}" : nlohmann::json(weight_map).dump();
  return json(name, "{\"metadata\": {\"total_size\": " + std::to_string(total_size) + "}, \"weight_map\": " + map +
                        extra + "}\n");
}

TestDirectory& TestDirectory::json(const std::string& name, const std::string& text) {
  directory.path = kPath;
  directory.json[name] = text;
  return *this;
}

TestDirectory& TestDirectory::other(const std::string& name) {
  directory.path = kPath;
  directory.others[name] = 0;
  return *this;
}

TestDirectory& TestDirectory::content(const std::string& name, const std::string& bytes) {
  if (!contents_) contents_ = std::make_shared<std::map<std::string, std::string>>();
  other(name);
  directory.others[name] = bytes.size();
  (*contents_)[name] = bytes;
  directory.access.open = [contents = contents_](const std::string& file) {
    const std::string& text = contents->at(file);
    return base::ByteSource{text.size(), [&text](std::span<std::byte> to, std::uint64_t at) {
                              std::memcpy(to.data(), text.data() + at, to.size());
                            }};
  };
  return *this;
}

Directory load_case(const std::string& name) {
  constexpr std::string_view kHeader = ".header";
  Directory directory;
  directory.path = "dialects/" + name;
  for (const auto& entry : std::filesystem::directory_iterator(cairn::test::test_data("dialects/" + name))) {
    const std::string file = entry.path().filename();
    if (file == "expected.json") continue;
    if (entry.is_directory()) {
      directory.folders.push_back(file);
    } else if (file.ends_with(kHeader)) {
      const std::string bytes = cairn::test::read_file(entry.path());
      const std::string data_file = file.substr(0, file.size() - kHeader.size());
      directory.safetensors[data_file] = parse(bytes, data_bytes_of(bytes), data_file);
    } else if (file.ends_with(".json")) {
      directory.json[file] = cairn::test::read_file(entry.path());
    } else {
      directory.others[file] = entry.file_size();
    }
  }
  return directory;
}

std::string failure_of(const Directory& directory, ErrorKind kind) {
  try {
    (void)recognise(directory);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.rfind(directory.path, 0), 0u) << message;
    return message;
  }
  ADD_FAILURE() << "recognise() accepted the directory";
  return {};
}

format::StoredTensor tensor_of(const Recognised& recognised, const std::string& section, const std::string& name) {
  for (const auto& tensor : recognised.tensors) {
    if (tensor.section == section && tensor.name == name) return format::stored_tensor(tensor);
  }
  throw std::runtime_error("no tensor " + section + ":" + name);
}

std::map<std::string, std::size_t> sections_of(const Recognised& recognised) {
  std::map<std::string, std::size_t> sections;
  for (const auto& tensor : recognised.tensors) ++sections[std::string(tensor.section)];
  return sections;
}

bool warns_of(const Recognised& recognised, const std::vector<std::string>& texts) {
  for (const auto& line : recognised.warnings) {
    bool all = line.find('\n') == std::string::npos;
    for (const auto& text : texts) all = all && line.find(text) != std::string::npos;
    if (all) return true;
  }
  return false;
}

}  // namespace cairn::interop::test
