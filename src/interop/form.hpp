// A form: the files of a checkpoint as another system expects them. The counterpart of a dialect, for writing.
//
// A form is a class in its system's folder, listed by the system's Dialect::forms(). A save calls check_options(),
// layout(), check() and files_beside() in this order; a conversion also calls map(), and lay_out() for layout(). Pure.
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

#include "cairn/error.hpp"
#include "cairn/options.hpp"
#include "interop/directory.hpp"
#include "interop/notes.hpp"
#include "plan/catalog.hpp"
#include "plan/file_layout.hpp"
#include "plan/tensor_map.hpp"

namespace cairn::interop {

struct FormTraits {
  std::string_view word;        ///< value of `convert --to` and FileOptions::form
  std::string_view what;        ///< in messages: "Hugging Face files"
  bool is_sharded = false;      ///< each rank of a layout has files with its parts of tensors; otherwise tensors are
                                ///< whole
  bool holds_codes = false;     ///< moments may remain codes and weights omitted, unless why_decoded() gives a reason
  bool reads_config = false;    ///< saves and conversions use StateToWrite::config
  bool keeps_names = false;     ///< uses StateToWrite::keeps_names
  bool keeps_metadata = false;  ///< a conversion keeps its source's `__metadata__`
  bool asks_processes = false;  ///< uses FormRequest::processes
};

/// A state to be written, except its tensors.
struct StateToWrite {
  std::string place;                          ///< the converted checkpoint, for messages; empty: a program's state
  bool is_foreign = false;                    ///< a conversion's source that Cairn did not write
  std::map<std::string, std::string> values;  ///< as in About::values
  std::optional<std::string> config;          ///< content of config.json, if it exists and the form reads it
  std::optional<std::uint64_t> step;
  std::vector<std::string> carried;                  ///< files that are copied unchanged
  std::span<const QuantisedMoments> quantised = {};  ///< moments of a conversion's source
  bool omits_weights = false;                        ///< the source omits weights that readers derive from others
  bool keeps_codes = false;                          ///< the source's moments are written as codes, unchanged
  bool keeps_names = false;  ///< a conversion leaves names and orders of dimensions as they are, if the form allows it
};

/// The refusal of a conversion to Hugging Face files of which transformers would not find the weights.
Error no_model_of_transformers(const StateToWrite& state, std::string_view why);

/// The request of a conversion.
struct FormRequest {
  FileOptions files;                  ///< `metadata`: includes the source's, if the form keeps it
  std::optional<std::string> layout;  ///< text of a layout, for the files of a sharded form
  std::uint64_t processes = 0;        ///< number of processes that will resume; 0: any number but one
};

/// The additional files next to the data files.
struct FormFiles {
  std::map<std::string, std::string> texts;   ///< by name: indexes, and small files not in StateToWrite::carried
  std::map<std::string, std::string> values;  ///< for the manifest's metadata; an empty value removes the source's
  Notes notes;                                ///< for the user
};

/// A state whose tensors a form has checked.
class CheckedState {
 public:
  CheckedState() = default;
  CheckedState(const CheckedState&) = delete;
  CheckedState& operator=(const CheckedState&) = delete;
  virtual ~CheckedState() = default;

  /// The reason why the system, although it can read the state, would not continue from it. A save is then refused, and
  /// a conversion reports the reason. Empty if the system would continue.
  [[nodiscard]] virtual std::string problem() const = 0;

  /// `indexes`: the layout's indexes, by file name. Throws Error(kUsage) for a config.json that contradicts the
  /// tensors, and Error(kUsage or kFormat) for one that is not JSON.
  [[nodiscard]] virtual FormFiles files_beside(std::map<std::string, std::string> indexes, const StateToWrite& state,
                                               std::uint64_t processes) const = 0;
};

/// Some of the tensors of a catalog, by number.
struct CatalogShare {
  std::uint32_t first = 0;
  std::uint32_t end = std::numeric_limits<std::uint32_t>::max();
};
/// A rank's share; shares are about equal, and together have all tensors.
CatalogShare share_of_catalog(const plan::PackedCatalog& catalog, int rank, int ranks);

class Form {
 public:
  Form() = default;
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;
  virtual ~Form() = default;

  [[nodiscard]] virtual const FormTraits& traits() const = 0;

  /// Whether a conversion of this state, which has no config yet, uses StateToWrite::config.
  [[nodiscard]] virtual bool reads_config(const StateToWrite& /*state*/) const { return traits().reads_config; }

  /// Throws Error(kUsage) for codecs and omissions that the system's loader does not support.
  virtual void check_options(const Quantisation& quantisation, std::uint64_t processes) const = 0;

  /// Options for the layout of the data files.
  [[nodiscard]] virtual plan::LayoutOptions layout(const FileOptions& files) const = 0;

  /// Throws Error(kUsage), one line naming the item that the loader would not find, for a state from which it could not
  /// resume. Checks all names; the expensive checks cover only the tensors in `share`, so that ranks can divide the
  /// work.
  [[nodiscard]] virtual std::unique_ptr<const CheckedState> check(const plan::PackedCatalog& catalog,
                                                                  const CatalogShare& share) const = 0;

  // For conversions:

  /// The reason, as a note, why codes and omitted weights are not kept; empty: they are, or the form holds no codes.
  [[nodiscard]] virtual std::string why_decoded(const StateToWrite& state, std::uint64_t processes) const = 0;

  /// The tensors that the system expects, in catalog order, made from the tensors of a view of the source. Throws
  /// Error(kUsage) for tensors that cannot be converted, such as a weight whose order of dimensions is unknown.
  [[nodiscard]] virtual plan::TensorMap map(const plan::Catalog& view, const StateToWrite& state,
                                            std::uint64_t processes, Notes& notes) const = 0;

  /// The files of a catalog. Throws Error(kUsage) for a layout that is missing or invalid.
  [[nodiscard]] virtual plan::FileLayout lay_out(const plan::Catalog& catalog, const FormRequest& request,
                                                 const StateToWrite& state, Notes& notes) const = 0;
};

/// A form without requirements: it accepts every state, and leaves tensors as they are. The only additional files are
/// the indexes.
class PlainForm : public Form {
 public:
  void check_options(const Quantisation& /*quantisation*/, std::uint64_t /*processes*/) const override {}
  [[nodiscard]] plan::LayoutOptions layout(const FileOptions& files) const override;
  [[nodiscard]] std::unique_ptr<const CheckedState> check(const plan::PackedCatalog& catalog,
                                                          const CatalogShare& share) const override;
  [[nodiscard]] plan::TensorMap map(const plan::Catalog& view, const StateToWrite& state, std::uint64_t processes,
                                    Notes& notes) const override;
};

/// The words of all dialects' forms.
std::vector<std::string> form_words();
/// The form with that word. Throws Error(kUsage), listing the valid words, for any other word.
const Form& form_called(std::string_view word);
/// The form with that FileOptions::form ("hf" if it is empty) for a save, which writes no sharded form. Throws
/// Error(kUsage), listing the valid words, for any other word.
const Form& form_of_save(std::string_view word);

}  // namespace cairn::interop
