// `cairn inspect`: shows the content of a safetensors file or a checkpoint directory, without reading tensor data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/output.hpp"
#include "format/manifest.hpp"
#include "opening/open.hpp"

namespace cairn::cli {

struct InspectOptions {
  std::filesystem::path path;
  std::vector<std::string> parts;  ///< other directories with files of the checkpoint
  bool follow_links = false;       ///< out of the checkpoint's directory
  bool json = false;
  bool all = false;  ///< no limit on rows on a terminal
  // The tables to print; none: all.
  bool sections = false;
  bool files = false;
  bool tensors = false;
  bool metadata = false;
};

/// Pairs of moments that are stored as codes and scales.
struct InspectCoding {
  std::string codec;
  std::uint64_t pairs = 0;
  std::uint64_t size_bytes = 0;          ///< of codes and scales
  std::uint64_t decoded_size_bytes = 0;  ///< of the moments in F32
};

/// Sums over the tensors of one section, or over all.
struct InspectTotals {
  std::string section;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t size_bytes = 0;             ///< of tensor data
  std::uint64_t files = 0;                  ///< data files with a part of the section
  std::vector<InspectCoding> codings = {};  ///< of moments stored as codes, by codec
};

struct InspectFile {
  std::string name;
  std::filesystem::path directory;
  std::uint64_t size_bytes = 0;
  std::uint64_t tensors = 0;
  std::map<std::string, std::string> metadata;  ///< `__metadata__` of the file
};

struct Inspection {
  std::filesystem::path path;      ///< the file or directory that was opened
  std::vector<std::string> parts;  ///< other directories with its files
  opening::OpenCheckpoint checkpoint;
  std::vector<InspectTotals> sections;  ///< in catalog order
  InspectTotals total;
  std::map<std::pair<std::string, std::string>, const interop::QuantisedMoments*>
      coded;                             ///< by section and stored name of codes or scales
  std::vector<format::Rebuilt> rebuilt;  ///< weights that a load makes from others
  std::vector<InspectFile> files;        ///< as stored.files
  std::vector<std::string> left_behind;  ///< small files that a conversion does not take along
  std::vector<std::string> notes;        ///< about the meaning of the path, and warnings of the checkpoint
};

/// Rank-local. Throws as checkpoint::open_here.
Inspection inspect_here(const InspectOptions& options);

/// Rank-local: bytes of a stored tensor.
std::uint64_t size_of(const format::PlacedTensor& tensor);

/// "8.6 MiB for 32.0 MiB, 3.8x".
std::string saving_text(const InspectCoding& coding);

/// Rank-local: prints tables or the JSON document.
void print_inspection(Output& output, const Inspection& inspection, const InspectOptions& options);
void print_inspection_json(Output& output, const Inspection& inspection);

/// Collective, though only rank 0 works. Exit code.
int run_inspect(Context& context, const InspectOptions& options);

}  // namespace cairn::cli
