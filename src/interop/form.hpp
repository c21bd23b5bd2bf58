// A form: the files of a checkpoint as another system wants them. The counterpart of a dialect, for writing.
//
// A form is a class in its system's folder, which the system's Dialect::forms() lists. A save asks it for options, layout,
// check and files, in that order; a conversion also for the map from the tensors of its source. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/options.hpp"
#include "interop/directory.hpp"
#include "plan/catalog.hpp"
#include "plan/file_layout.hpp"

namespace cairn::interop {

struct FormTraits {
  std::string_view word;        ///< of `convert --to` and FileOptions::form
  std::string_view what;        ///< in messages: "Hugging Face files"
  bool is_sharded = false;      ///< files of the ranks of a layout, each with its parts of tensors; else whole tensors
  bool holds_codes = false;     ///< moments may stay codes, and weights left out
  bool reads_config = false;    ///< StateToWrite::config matters
  bool keeps_metadata = false;  ///< `__metadata__` of a conversion's source goes along
  bool asks_processes = false;  ///< FormRequest::processes matters
  bool may_transpose = false;   ///< map() may turn tensors round
};

/// A state that is to be written, tensors apart.
struct StateToWrite {
  std::string place;  ///< the checkpoint that is converted, for messages; empty: a program's state
  std::map<std::string, std::string> values;  ///< as About::values
  std::optional<std::string> config;          ///< text of config.json; nothing: there is none
  std::optional<std::uint64_t> step;
  std::vector<std::string> carried;                  ///< files that go along as they are
  std::span<const QuantisedMoments> quantised = {};  ///< of a conversion's source
  bool omits_weights = false;                        ///< the source leaves out weights that readers make from others
  bool keeps_codes = false;                          ///< its moments are written as the codes that they are
};

/// What a conversion asks for.
struct FormRequest {
  FileOptions files;                  ///< `metadata`: with that of the source, if the form keeps it
  std::optional<std::string> layout;  ///< text of a layout, whose ranks have the files of a sharded form
  std::uint64_t processes = 0;        ///< that are to resume; 0: any number but one
};

/// Tensors to be written, and the ones of the source that they are.
struct FormTensors {
  plan::Catalog catalog;
  std::vector<std::uint32_t> sources;  ///< of each tensor of the catalog: its number in the source's
  std::vector<bool> transposed;        ///< the source's two dimensions the other way round
};

/// The files that stand next to the data files.
struct FormFiles {
  std::map<std::string, std::string> texts;   ///< by name: indexes, and small files that `carried` lacks
  std::map<std::string, std::string> values;  ///< for the manifest's metadata
  std::vector<std::string> notes;             ///< one line each, for the user
};

/// A state whose tensors a form has checked.
class CheckedState {
 public:
  CheckedState() = default;
  CheckedState(const CheckedState&) = delete;
  CheckedState& operator=(const CheckedState&) = delete;
  virtual ~CheckedState() = default;

  /// Why the system would not go on from it, though it reads it; empty: it would. A save is refused, a conversion says so.
  [[nodiscard]] virtual std::string problem() const = 0;

  /// `indexes`: of the layout, by file name. Throws Error(kUsage) for a config.json that contradicts the tensors.
  [[nodiscard]] virtual FormFiles files_beside(std::map<std::string, std::string> indexes, const StateToWrite& state,
                                               std::uint64_t processes) const = 0;
};

/// Some of the tensors of a catalog, by number.
struct CatalogShare {
  std::uint32_t first = 0;
  std::uint32_t end = std::numeric_limits<std::uint32_t>::max();
};
/// About as many as those of any other rank; together all of them.
CatalogShare share_of_catalog(const plan::PackedCatalog& catalog, int rank, int ranks);

class Form {
 public:
  Form() = default;
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;
  virtual ~Form() = default;

  [[nodiscard]] virtual const FormTraits& traits() const = 0;

  /// Throws Error(kUsage) for codecs and omissions that the system's loader does not know.
  virtual void check_options(const Quantisation& quantisation, std::uint64_t processes) const = 0;

  /// How the files of whole tensors are made.
  [[nodiscard]] virtual plan::LayoutOptions layout(const FileOptions& files) const = 0;

  /// Throws Error(kUsage), one line that says what the loader would not find, for a state that it cannot resume from. All
  /// names are looked at; what costs more is looked at of the tensors in `share` alone, so that ranks may share the work.
  [[nodiscard]] virtual std::unique_ptr<const CheckedState> check(const plan::PackedCatalog& catalog,
                                                                  const CatalogShare& share) const = 0;

  // Of conversions.

  /// Why the source's codes and omitted weights cannot stay as they are, as a note; empty: they can.
  [[nodiscard]] virtual std::string why_decoded(const StateToWrite& state, std::uint64_t processes) const = 0;

  /// The tensors of a view of the source under the names and in the order of dimensions that the system wants. Throws
  /// Error(kUsage) when nothing says in which order they are.
  [[nodiscard]] virtual FormTensors map(const plan::Catalog& view, const StateToWrite& state, std::uint64_t processes,
                                        std::vector<std::string>& notes) const = 0;

  /// The files of a catalog. Throws Error(kUsage) for a layout that is missing or not one.
  [[nodiscard]] virtual plan::FileLayout lay_out(const plan::Catalog& catalog, const FormRequest& request,
                                                 const StateToWrite& state, std::vector<std::string>& notes) const = 0;
};

/// The words of all dialects' forms.
std::vector<std::string> form_words();
/// The form of that word. Throws Error(kUsage), naming those that there are.
const Form& form_called(std::string_view word);
/// The form that a save writes (FileOptions::form; empty: "hf"). Throws Error(kUsage), naming those that there are, for
/// every other word.
const Form& form_of_save(std::string_view word);

// What forms that ask for nothing have in common.

/// No problem, and nothing but the indexes.
std::unique_ptr<const CheckedState> unchecked_state();
FormTensors as_they_are(const plan::Catalog& view);

}  // namespace cairn::interop
